// The exchange of a rank whose others are in other processes: the kernels are those of ranks that meet in the
// host's memory (Way::host), and a thread of the host stands for the others there. It looks for this rank's
// flags in the mailbox, hands what the kernels have written to whoever carries it (a network), leaves what
// came back in the others' places and raises their flags. The kernels add, in the order of ranks, and have
// waited all the while: a step can be recorded as a graph, and nothing of it is launched once more.
//
// The thread looks all the time while there is work, which takes a core; between steps it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/all_reduce/exchange.h"

namespace fourfold::all_reduce {

struct BridgeOptions {
  int ranks = 1;
  int rank = 0;
  int blocks = 8;
  // For the kernels: longer than whoever carries has patience, who knows which rank is missing.
  double wait_seconds = 3600;
  bool overlaps = false;
};

class BridgedExchange final : public Exchange {
 public:
  // Brings this rank's numbers to all ranks: all[r * part.size() ...] are rank r's. One thread calls it, in
  // the order of calls; `where` is the name of the call's place. What it throws ends the step, and is thrown
  // by rethrow_failure().
  using Carry =
      std::function<void(std::string_view where, std::span<const float> part, std::span<float> all)>;

  BridgedExchange(const BridgeOptions& options, Carry carry);
  ~BridgedExchange() override;

  void join(int rank, kernels::Machine& machine, int columns, int rows, int gathered) override;
  void name_places(std::vector<std::string> names) override { names_ = std::move(names); }
  Meets meets() const override { return Meets::bridged; }
  bool is_carried() const override { return true; }
  void begin_work() override;
  void end_work() override { is_working_ = false; }
  void rethrow_failure() const override;
  bool has_failed() const override;
  void begin_anew() override;
  // A graph that is made waits for this process's device alone, and the others have their own.
  std::optional<Unanswered> meet(int) override { return std::nullopt; }

 private:
  void stand_in();
  bool look() const;
  void carry_call();
  std::string name_of(std::uint32_t place) const;

  const int rank_;
  const Carry carry_;
  std::vector<std::string> names_;
  kernels::Memory* memory_ = nullptr;  // this rank's
  std::uint32_t epoch_ = 1;            // of the next call, as this rank's kernels count
  std::vector<float> part_, all_;

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::atomic<bool> is_working_ = false;  // kernels that send may be on their way
  std::atomic<bool> ends_ = false;
  bool is_busy_ = false;        // the thread looks, or carries
  std::exception_ptr failure_;  // of a call, since begin_anew
  std::thread thread_;
};

}  // namespace fourfold::all_reduce
