// One rank of several processes in NVIDIA's library for GPUs of several machines, opened when it is asked
// for. It gathers and adds nothing: sums are made by our kernels, in the order of ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "kernels/all_reduce/nccl_library.h"

namespace fourfold::all_reduce {

class NcclMember {
 public:
  // What the ranks of one group know it by; made by one of them.
  using Id = std::array<char, 128>;

  // Throws unsupported_op where the file cannot be opened, has not what is needed, or is of a version this
  // was not written for.
  explicit NcclMember(const std::string& file);
  ~NcclMember();
  NcclMember(const NcclMember&) = delete;
  NcclMember& operator=(const NcclMember&) = delete;

  const std::string& file() const { return library_.file(); }
  const std::string& version() const { return library_.version(); }  // "2.27.3"

  Id make_id() const;
  // Waits for all others. The GPU is the calling thread's. One group at a time. Throws device_lost.
  void connect(const Id& id, int rank, int rank_count);
  bool is_connected() const { return comm_ != nullptr; }
  // out: [rank_count, count], of all ranks; behind what the stream (cudaStream_t) has. Throws device_lost.
  void all_gather(const float* in, float* out, std::size_t count, void* stream);
  // What was gathered may fail later: throws device_lost then.
  void require_well() const;
  // From any thread: kernels that wait for a rank that is gone end. The group is no more.
  void leave();

 private:
  NcclLibrary library_;
  std::atomic<void*> comm_ = nullptr;  // ncclComm_t
  mutable std::mutex asking_;          // how it is: not while it is left
};

// $FOURFOLD_NCCL, or libnccl.so.2 where the system finds it.
std::string nccl_file();

}  // namespace fourfold::all_reduce
