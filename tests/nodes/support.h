// A group on loopback: a leader, workers in threads, and a wire between them that a test can cut or freeze.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/ranks/host_collective.h"
#include "backend/ranks/ranks.h"
#include "nodes/leader.h"
#include "nodes/worker.h"
#include "tests/backend/support.h"

namespace fourfold::nodes {

inline const Token kToken("a secret of the test's own");
inline const Address kAnyPort{"127.0.0.1", 0};

// Bytes from whoever connects to a leader and back. Cut: both sides see the end of the connection. Frozen:
// nothing moves, and nobody is told, as when a machine is switched off.
class Wire {
 public:
  explicit Wire(std::uint16_t leader) : leader_{"127.0.0.1", leader}, listening_(kAnyPort) {
    thread_ = std::thread([this] { run(); });
  }
  ~Wire() {
    stops_ = true;
    cut();
    thread_.join();
  }
  Address address() const { return {"127.0.0.1", listening_.port()}; }
  void freeze() { is_frozen_ = true; }
  void thaw() { is_frozen_ = false; }
  void cut() { ++cuts_; }

 private:
  void run() {
    std::vector<std::jthread> threads;
    while (!stops_) {
      std::optional<Socket> near = listening_.accept(std::chrono::milliseconds(20));
      if (!near) continue;
      try {
        auto far = std::make_shared<Socket>(Socket::connect(leader_, std::chrono::seconds(1)));
        auto kept = std::make_shared<Socket>(std::move(*near));
        const int number = cuts_;
        threads.emplace_back([=, this] { forward(*kept, *far, number); });
        threads.emplace_back([=, this] { forward(*far, *kept, number); });
      } catch (const LinkLost&) {  // there is no leader: the connection is closed
      }
    }
  }
  void forward(Socket& from, Socket& to, int number) {
    std::vector<std::byte> bytes(1 << 16);
    while (cuts_ == number) {
      try {
        if (is_frozen_) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          continue;
        }
        const auto until = Clock::now() + std::chrono::milliseconds(20);
        const std::size_t got = receive(from, bytes, until);
        if (got > 0) to.send(std::span(bytes).first(got), {}, std::chrono::seconds(10));
      } catch (const LinkLost&) {
        break;
      }
    }
    from.shut();
    to.shut();
  }
  // 0: nothing yet.
  static std::size_t receive(Socket& from, std::span<std::byte> into, Clock::time_point until) {
    try {
      return from.receive(into, until);
    } catch (const LinkLost& lost) {
      if (std::string(lost.what()).find("too long") == std::string::npos) throw;
      return 0;
    }
  }

  const Address leader_;
  ListeningSocket listening_;
  std::atomic<bool> is_frozen_ = false, stops_ = false;
  std::atomic<int> cuts_ = 0;
  std::thread thread_;
};

// A part of nothing: each step sums random numbers of the rank, gathers them, and has that for logits.
// Numbers are of very different sizes, so that another order of additions gives other bits.
class ToyPart final : public backend::Prepared {
 public:
  static constexpr std::size_t kColumns = 500;
  // Tokens of a step that meets the others without the collective, and of one that has its number for logits.
  static constexpr std::int32_t kWaitsElsewhere = 777, kTellsGeneration = 778;
  // And of those in which what the ranks meet in fails rank 0, or rank 1, while the others wait.
  static constexpr std::int32_t kGroupFails = 779, kGroupFailsElsewhere = 780;
  ToyPart(backend::PartOf part, const backend::Capacity& capacity,
          std::shared_ptr<backend::Collective> collective)
      : capacity_(capacity), collective_(std::move(collective)) {
    program_.part = part;
    program_.vocab_size = static_cast<std::int64_t>(kColumns) * part.count;
    program_.values.push_back({.name = "logits"});
    program_.main_logits = {0};
    memory_ = {{"toys", 100 + part.rank}};
  }
  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return capacity_; }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t) const override { return 0; }
  std::int64_t anchor_bytes() const override { return 10; }
  std::span<const backend::MemoryUse> memory() const override { return memory_; }
  std::span<const std::string> notices() const override { return notices_; }

  void run(backend::Pass, const backend::Batch& batch, std::span<float> logits) override {
    if (batch.tokens.front() < 0) fail(Code::invalid_request, "token {}", batch.tokens.front());
    if (batch.tokens.front() == 666 && program_.part.rank == 1) throw std::runtime_error("the toy broke");
    const int rank = program_.part.rank;
    const std::int32_t token = batch.tokens.front();
    if ((token == kGroupFails && rank == 0) || (token == kGroupFailsElsewhere && rank == 1))
      throw backend::RankLost(backend::kNoRank, "NCCL is out of order");
    while (token == kWaitsElsewhere || token == kGroupFails || token == kGroupFailsElsewhere) {
      collective_->require_all_there(rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (batch.tokens.front() == kTellsGeneration) {
      const std::vector<float> number(kColumns, static_cast<float>(collective_->generation()));
      return collective_->all_gather(rank, "logits", 1, number, logits);
    }
    const auto seed = static_cast<std::uint64_t>(batch.tokens.front());
    const double scale = rank == 1 ? 1e6 : rank == 2 ? 1e-3 : 1;
    std::vector<float> x =
        backend::random_floats(kColumns, 100 * seed + static_cast<std::uint64_t>(rank), scale);
    for (int layer = 0; layer < 10; ++layer) collective_->all_reduce(rank, "toy", x, x);
    collective_->all_gather(rank, "none", 0, {}, {});
    collective_->all_gather(rank, "logits", 1, x, logits);
  }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override {
    saved_ = {slot, position, anchor};
  }
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override {
    if (saved_ != std::vector<std::int64_t>{slot, position, anchor})
      fail(Code::invalid_request, "no anchor {} of slot {} at {}", anchor, slot, position);
  }
  bool run_sampled(backend::Pass, const backend::Batch& batch, const backend::Choices& choices,
                   const backend::Chosen& chosen) override {
    if (choices.token_limit == 0) return false;
    std::ranges::fill(chosen.tokens, batch.tokens.front() + static_cast<std::int32_t>(choices.rows[0].top_k));
    return true;
  }
  bool run_drafts(const backend::Batch&, const backend::Choices&, std::span<const int> counts,
                  std::span<std::int32_t> drafts) override {
    std::ranges::fill(drafts, counts.front());
    return true;
  }
  void set_history(std::int32_t slot, std::span<const backend::SeenToken> seen) override {
    if (seen.size() != 1 || seen[0].bias != slot) fail(Code::invalid_request, "another history");
  }

 private:
  backend::Program program_;
  backend::Capacity capacity_;
  std::shared_ptr<backend::Collective> collective_;
  std::vector<backend::MemoryUse> memory_;
  std::vector<std::string> notices_ = {"a toy"};
  std::vector<std::int64_t> saved_;
};

class ToyBackend final : public backend::Backend {
 public:
  explicit ToyBackend(std::shared_ptr<backend::Collective> collective) : collective_(std::move(collective)) {}
  std::string_view name() const override { return "toy"; }
  std::unique_ptr<backend::Prepared> prepare(backend::Program program,
                                             const backend::Capacity& capacity) override {
    return std::make_unique<ToyPart>(program.part, capacity, collective_);
  }

 private:
  std::shared_ptr<backend::Collective> collective_;
};

inline const TensorSums kTensorSums{{11, 12, 13}};

inline RankModel toy_model(const ModelSums& sums = {1, 2, 3}) {
  return {.open = [=](const Settings&) { return sums; },
          .sum = [] { return kTensorSums; },
          .load = [](const Settings& settings,
                     std::shared_ptr<backend::Collective> collective) -> std::shared_ptr<backend::Prepared> {
            return std::make_shared<ToyPart>(backend::PartOf{settings.rank, settings.rank_count},
                                             settings.capacity, std::move(collective));
          }};
}

// What a leader or a rank logs, from any of its threads.
class Lines {
 public:
  std::function<void(const std::string& line)> writer() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      text_ += line + "\n";
    };
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// run_worker in a thread; how it ended.
class WorkerThread {
 public:
  WorkerThread(WorkerOptions options, RankModel model)
      : options_(std::move(options)), model_(std::move(model)), thread_([this] {
          try {
            run_worker(options_, model_);
            end_ = "well";
          } catch (const std::exception& error) {
            end_ = error.what();
          }
        }) {}
  ~WorkerThread() { join(); }
  std::string join() {
    if (thread_.joinable()) thread_.join();
    return end_;
  }

 private:
  WorkerOptions options_;
  RankModel model_;
  std::string end_;
  std::thread thread_;
};

inline WorkerOptions worker_options(const Address& leader, int rank = -1) {
  return {.leader = leader,
          .token = kToken,
          .version = "1.0",
          .rank = rank,
          .patience = std::chrono::seconds(20)};
}

inline LeaderOptions leader_options(int rank_count, std::shared_ptr<backend::Collective> collective) {
  return {.listen = kAnyPort,
          .token = kToken,
          .version = "1.0",
          .settings = {.rank = 0,
                       .rank_count = rank_count,
                       .model = "toy",
                       .backend = "cpu",
                       .activations = "auto",
                       .kv = "auto",
                       .experts = "auto",
                       .capacity = {.page_count = 4, .state_slot_count = 2, .row_count = 8}},
          .model = {1, 2, 3},
          .sum_tensors = [](const std::function<bool()>&) { return kTensorSums; },
          .tensor_name = [](std::size_t tensor) { return format("tensor {} in toys", tensor); },
          .collective = std::move(collective),
          .join_patience = std::chrono::seconds(20)};
}

// Calls until it is true, or the test has waited too long for that.
template <class Ask>
bool comes_true(Ask ask, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  for (const auto until = Clock::now() + patience; !ask();
       std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    if (Clock::now() >= until) return false;
  return true;
}

}  // namespace fourfold::nodes
