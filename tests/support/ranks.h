// A loaded model cut into ranks, each a thread, and a collective that fails where a test says.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective.h"
#include "backend/cpu/cpu.h"
#include "backend/ranks/host_collective.h"
#include "backend/ranks/ranks.h"
#include "backend/reference/reference.h"
#include "model/forward.h"

namespace fourfold::backend {

// Calls `before` with the rank and the number of its call, then the host collective.
class WatchedCollective final : public Collective {
 public:
  using Before = std::function<void(int rank, int call, std::string_view where)>;
  WatchedCollective(int rank_count, std::chrono::milliseconds patience, Before before)
      : inner_(make_host_collective(rank_count, patience)),
        before_(std::move(before)),
        calls_(static_cast<std::size_t>(rank_count)) {}

  int rank_count() const override { return inner_->rank_count(); }
  void all_reduce(int rank, std::string_view where, std::span<const float> in,
                  std::span<float> out) override {
    before_(rank, calls_[static_cast<std::size_t>(rank)]++, where);
    inner_->all_reduce(rank, where, in, out);
  }
  void all_gather(int rank, std::string_view where, std::int64_t row_count, std::span<const float> in,
                  std::span<float> out) override {
    before_(rank, calls_[static_cast<std::size_t>(rank)]++, where);
    inner_->all_gather(rank, where, row_count, in, out);
  }
  void give_up(int rank, const std::string& why) override { inner_->give_up(rank, why); }
  void mend() override { inner_->mend(); }

 private:
  std::shared_ptr<Collective> inner_;
  Before before_;
  std::vector<int> calls_;  // each by its own rank
};

// Where a thread waits until the test lets it go.
class Door {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opens_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opens_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opens_;
  bool is_open_ = false;
};

struct RankSetup {
  int count = 2;
  std::string backend = "cpu";  // or reference
  model::ExpertSharding experts = model::ExpertSharding::automatic;
  model::Activations activations = model::Activations::f32;
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  WatchedCollective::Before before = {};
  bool keep_values = false;
};

// `loaded` has a config and a model of bound weights.
template <class Loaded>
std::unique_ptr<Prepared> prepare_sharded(
    const Loaded& loaded, const RankSetup& setup, const Capacity& capacity,
    std::vector<std::weak_ptr<const model::ModelShard>>* parts = nullptr) {
  std::shared_ptr<Collective> collective = make_host_collective(setup.count, setup.patience);
  if (setup.before)
    collective = std::make_shared<WatchedCollective>(setup.count, setup.patience, setup.before);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < setup.count; ++rank) {
    auto part = std::make_shared<const model::ModelShard>(
        model::shard_model(loaded.config, loaded.model.weights, {rank, setup.count}, setup.experts));
    if (parts != nullptr) parts->push_back(part);
    std::shared_ptr<Backend> backend;
    if (setup.backend == "reference")
      backend = std::make_shared<ReferenceBackend>(collective);
    else
      backend = make_cpu_backend({.threads = 1, .keep_values = setup.keep_values, .collective = collective});
    Program program = model::build_program(*part, setup.activations);
    ranks.push_back({std::move(backend), std::move(program), std::move(part)});
  }
  const auto give_up = [collective](int rank, const std::string& why) { collective->give_up(rank, why); };
  return prepare_ranks(std::move(ranks), capacity, {.patience = setup.patience, .give_up = give_up});
}

}  // namespace fourfold::backend
