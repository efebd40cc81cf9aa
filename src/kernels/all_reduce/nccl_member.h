// One rank of several processes in NVIDIA's library for GPUs of several machines, opened when it is asked
// for. It gathers and adds nothing: sums are made by our kernels, in the order of ranks.
//
// The communicator does not block: a call of NCCL's returns at once, and what it began is asked after. So
// nobody waits inside of the library, where a wait for a rank that is gone could not be ended; calls go one
// at a time under a lock, and the group can be left from another thread without a communicator that is in
// use being freed.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
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
  struct Wait {
    std::chrono::milliseconds patience = std::chrono::seconds(45);
    std::function<void()> look = [] {};  // meanwhile, again and again: what it throws ends the wait
  };
  // Waits for all others. The GPU is the calling thread's. One group at a time. Throws device_lost, also when
  // they have not come in time, and what wait.look throws; then there is no group.
  void connect(const Id& id, int rank, int rank_count, const Wait& wait);
  bool is_connected() const;
  // out: [rank_count, count], of all ranks; behind what the stream (cudaStream_t) has. Throws device_lost.
  void all_gather(const float* in, float* out, std::size_t count, void* stream);
  // What was gathered may fail later: throws device_lost then.
  void require_well() const;
  // From any thread: kernels that wait for a rank that is gone end. The group is no more.
  void leave();

 private:
  // Until what was begun is done. Throws device_lost: it has failed, or the group was left.
  void finish(const char* what, const std::function<void()>& meanwhile);
  int status_now(const char* what) const;

  NcclLibrary library_;
  mutable std::mutex calling_;  // the library: one thread at a time
  void* comm_ = nullptr;        // ncclComm_t
};

// $FOURFOLD_NCCL, or libnccl.so.2 where the system finds it.
std::string nccl_file();

}  // namespace fourfold::all_reduce
