// A loaded model cut into ranks on simulated GPUs, each a device and a thread of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/ranks/ranks.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/sim_machine.h"
#include "model/forward.h"
#include "model/shard.h"

namespace fourfold::backend {

// Goes when nobody can touch it any more: rank threads that were left behind keep it.
struct SimRanks {
  SimRanks(int count, all_reduce::ExchangeOptions options, const plan::ArchFacts& arch = plan::kSm120) {
    options.ranks = count;
    reports.resize(static_cast<std::size_t>(count));
    exchange = std::make_shared<all_reduce::Exchange>(options);
    const auto peers = std::make_shared<sim::PeerMemory>(count);
    for (int rank = 0; rank < count; ++rank) {
      devices.push_back(std::make_unique<sim::Device>(
          sim::DeviceOptions{.memory_bytes = std::size_t{1} << 28, .peers = peers, .rank = rank}));
      machines.push_back(kernels::make_sim_machine(*devices.back(), {.arch = &arch}));
    }
  }
  std::vector<std::unique_ptr<sim::Device>> devices;
  std::vector<std::unique_ptr<kernels::Machine>> machines;
  std::vector<LoadReport> reports;
  std::shared_ptr<all_reduce::Exchange> exchange;  // goes first
};

class SimRank final : public Backend {
 public:
  SimRank(std::shared_ptr<SimRanks> all, int rank)
      : all_(std::move(all)),
        inner_(make_gpu_backend(*all_->machines[static_cast<std::size_t>(rank)],
                                {.load = {.report = &all_->reports[static_cast<std::size_t>(rank)]},
                                 .exchange = all_->exchange})) {}
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override {
    return inner_->prepare(std::move(program), capacity);
  }

 private:
  std::shared_ptr<SimRanks> all_;
  std::unique_ptr<Backend> inner_;
};

// `loaded` has a config and a model of bound weights.
template <class Loaded>
std::unique_ptr<Prepared> prepare_sim(const Loaded& loaded, const std::shared_ptr<SimRanks>& all,
                                      const Capacity& capacity,
                                      model::Activations activations = model::Activations::w4a16) {
  std::vector<Rank> ranks;
  const auto count = static_cast<int>(all->machines.size());
  for (int rank = 0; rank < count; ++rank) {
    auto part = std::make_shared<const model::ModelShard>(model::shard_model(
        loaded.config, loaded.model.weights, {rank, count}, model::ExpertSharding::automatic));
    Program program = model::build_program(*part, activations);
    ranks.push_back({std::make_shared<SimRank>(all, rank), std::move(program), std::move(part)});
  }
  return prepare_ranks(std::move(ranks), capacity,
                       {.patience = std::chrono::seconds(60),
                        .give_up = [all](int, const std::string&) { all->exchange->stop(); }});
}

}  // namespace fourfold::backend
