// NVIDIA's library for sums between GPUs, where it is installed: a second opinion on ours, opened when it is
// asked for. It adds in an order of its own, which depends on the message's size and on the machine, so no
// step goes this way: the same request would get other bits in another batch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/all_reduce/nccl_library.h"

namespace fourfold::all_reduce {

class Nccl {
 public:
  // Throws unsupported_op where the file cannot be opened or has not what is needed, or is too old.
  explicit Nccl(const std::string& file = "libnccl.so.2");
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& version() const { return library_.version(); }  // "2.27.3"

  // A rank on each of these GPUs. Once. Throws unsupported_op where two are the same: the library wants a GPU
  // for each rank.
  void connect(const std::vector<int>& devices);

  // out = the sum of all ranks' in, `count` numbers each; behind what the streams have. One thread for all
  // ranks.
  struct Member {
    const float* in;
    float* out;
    void* stream;  // cudaStream_t
  };
  void all_reduce(const std::vector<Member>& members, std::size_t count);

 private:
  NcclLibrary library_;
  std::vector<void*> ranks_;  // ncclComm_t
};

}  // namespace fourfold::all_reduce
