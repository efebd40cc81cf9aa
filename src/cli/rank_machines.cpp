#include "cli/rank_machines.h"

#include "base/format.h"
#include "cli/gpu.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::cli {
namespace {

constexpr int kCheckRounds = 100;
constexpr int kCheckColumns = 4096;
// The simulator takes minutes for what a GPU does at once.
constexpr double kSimWaitSeconds = 3600;

void open_simulated(RankMachines& out, int ranks) {
  struct Simulated {
    sim::Device device;
    std::unique_ptr<kernels::Machine> machine = kernels::make_sim_machine(device);
  };
  const auto peers = std::make_shared<sim::PeerMemory>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::shared_ptr<Simulated> simulated(
        new Simulated{.device = sim::Device({.peers = peers, .rank = rank})});
    out.machines.push_back({simulated, simulated->machine.get()});
    out.enter.push_back([] {});
  }
  out.exchange = std::make_shared<all_reduce::Exchange>(
      all_reduce::ExchangeOptions{.ranks = ranks, .blocks = 2, .wait_seconds = kSimWaitSeconds});
}

// What going through the host costs, by the model of the bus.
std::string price(int ranks) {
  char text[96];
  std::snprintf(
      text, sizeof text, "about %.0f us instead of %.0f for a row of 4,096 on PCIe 4",
      all_reduce::modelled_us(all_reduce::Way::host, plan::Link::pcie4, ranks, 1, kCheckColumns),
      all_reduce::modelled_us(all_reduce::Way::one_shot, plan::Link::pcie4, ranks, 1, kCheckColumns));
  return text;
}

// Why the GPUs may not write into each other's memory; empty: they may.
std::string refuse_peers(const RankMachines& ranks, bool one_gpu) {
  if (!one_gpu) {
    const PeerCheck check = check_peers();
    if (!check.wrong.empty()) return "copies " + check.wrong + " arrive with other values";
    if (!check.all) return "the driver does not let every GPU reach every other";
  }
  const int count = static_cast<int>(ranks.machines.size());
  std::vector<kernels::Machine*> machines;
  all_reduce::Exchange exchange({.ranks = count, .way = all_reduce::Way::one_shot, .wait_seconds = 5});
  for (int rank = 0; rank < count; ++rank) {
    machines.push_back(ranks.machines[static_cast<std::size_t>(rank)].get());
    ranks.enter[static_cast<std::size_t>(rank)]();
    exchange.join(rank, *machines.back(), kCheckColumns, 64);
  }
  return all_reduce::check_values(exchange, machines, kCheckColumns, kCheckRounds,
                                  [&](int rank) { ranks.enter[static_cast<std::size_t>(rank)](); });
}

void open_gpus(RankMachines& out, int ranks, const Console& console, bool strict) {
  const bool one_gpu = gpu_count() < ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::shared_ptr<Gpu> gpu = open_gpu(one_gpu ? 0 : rank);
    out.machines.push_back({gpu, &gpu->machine()});
    out.enter.push_back([gpu] { gpu->use(); });
  }
  if (one_gpu)
    notice(console,
           fourfold::format(
               "{} ranks on {} GPU{}: all of them on the first, which shows that it works, not how fast",
               ranks, gpu_count(), gpu_count() == 1 ? "" : "s"),
           strict);
  const std::string why = refuse_peers(out, one_gpu);
  if (!why.empty())
    notice(console, fourfold::format("the ranks meet in the host's memory, {}: {}", price(ranks), why),
           strict);
  out.exchange = std::make_shared<all_reduce::Exchange>(
      all_reduce::ExchangeOptions{.ranks = ranks, .peers = why.empty()});
}

}  // namespace

std::shared_ptr<RankMachines> open_rank_machines(const std::string& backend, int ranks,
                                                 const Console& console, bool strict) {
  auto out = std::make_shared<RankMachines>();
  if (backend == "sim")
    open_simulated(*out, ranks);
  else
    open_gpus(*out, ranks, console, strict);
  return out;
}

}  // namespace fourfold::cli
