// The exchange of a rank whose others are in other processes, over NCCL: it gathers the parts into this
// rank's device memory, where the kernels of Way::host find them as in a mailbox and add them in the order of
// ranks. Nobody's flag is waited for: what NCCL has gathered is there, so the others' flags are raised in
// front of each call. Calls cannot be recorded: between the kernels are NCCL's and copies.
//
// A rank that is gone leaves NCCL's kernels waiting for ever; a thread asks while there is work whether all
// are there, and ends the group when one is not. A new one is made with the next call. While that is made the
// same is asked.
//
// NOT RUN ON TWO GPUS: no machine with two was at hand. What calls the library is tested with one that stands
// in for it, on the simulated GPU.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/all_reduce/exchange.h"
#include "kernels/all_reduce/nccl_member.h"

namespace fourfold::all_reduce {

// What a rank needs of the way its process has to the others', which NCCL knows nothing of.
struct NcclRendezvous {
  // As BridgedExchange::Carry: the group's id goes over it.
  std::function<void(std::string_view where, std::span<const float> part, std::span<float> all)> carry;
  // Throws when a rank is not there; from another thread than the rest.
  std::function<void()> require_all_there;
  // Another number: the ranks that are there begin anew, and so does the group.
  std::function<std::uint64_t()> generation;
  // NCCL has failed and all ranks are there: throws what makes them begin anew.
  std::function<void(const std::string& why)> fail_group;
};

struct NcclExchangeOptions {
  int ranks = 1;
  int rank = 0;
  int blocks = 8;
  void* stream = nullptr;  // cudaStream_t, the machine's
  // The machine's memory cannot be given to a library (the simulator's): copies of it are.
  bool is_staged = false;
  std::function<void()> enter = [] {};  // makes the rank's GPU the calling thread's
  // For NCCL to connect all ranks: less than whoever asks for steps has.
  std::chrono::milliseconds connecting = std::chrono::seconds(45);
  // Whoever notices a lost rank has this long (nodes/link.h has five seconds) until NCCL's own error counts.
  std::chrono::milliseconds heard = std::chrono::seconds(6);
};

class NcclExchange final : public Exchange {
 public:
  NcclExchange(const NcclExchangeOptions& options, std::unique_ptr<NcclMember> member,
               NcclRendezvous rendezvous);
  ~NcclExchange() override;

  void join(int rank, kernels::Machine& machine, int columns, int rows, int gathered) override;
  Meets meets() const override { return Meets::nccl; }
  bool is_carried() const override { return true; }
  void begin_work() override;
  void end_work() override;  // also waits until nobody looks any more: what failed is known then
  void rethrow_failure() const override;
  bool has_failed() const override;  // also before the first call: there is no group yet
  void begin_anew() override;
  std::optional<Unanswered> meet(int) override { return std::nullopt; }

 private:
  void launch_piece(int rank, const std::string& row, const AllReduceParams& params) override;
  void gather_parts(const float* part, std::size_t count);
  void connect(const NcclMember::Id& id);
  [[noreturn]] void fail_call();
  std::exception_ptr unexplained(std::exception_ptr own) const;
  void watch();
  void look();
  void lose(std::exception_ptr why);

  const NcclExchangeOptions mine_;
  const NcclRendezvous rendezvous_;
  const std::unique_ptr<NcclMember> member_;
  kernels::Machine* machine_ = nullptr;
  device::F32x4* gathered_ = nullptr;  // [ranks, a piece]
  std::uint32_t epoch_ = 1;            // of the next call
  std::uint64_t generation_ = 0;       // of the group
  int calls_ = 0;                      // since this rank's GPU was waited for
  std::vector<float> staged_in_, staged_out_;

  mutable std::mutex watch_mutex_;
  mutable std::condition_variable news_;
  bool is_working_ = false, is_looking_ = false, ends_ = false;
  std::exception_ptr failure_;
  std::optional<std::chrono::steady_clock::time_point> unwell_since_;  // the thread's
  std::thread thread_;
};

}  // namespace fourfold::all_reduce
