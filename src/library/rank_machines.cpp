#include "library/rank_machines.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "kernels/all_reduce/bridged_exchange.h"
#include "kernels/all_reduce/nccl_exchange.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::library {
namespace {

constexpr int kCheckRounds = 100;
constexpr int kCheckColumns = 4096;
// The simulator takes minutes for what a GPU does at once.
constexpr double kSimWaitSeconds = 3600;

constexpr int kSimBlocks = 2;

void add_simulated(RankMachines& out, const std::shared_ptr<sim::PeerMemory>& peers, int rank) {
  struct Simulated {
    sim::Device device;
    std::unique_ptr<kernels::Machine> machine = kernels::make_sim_machine(device);
  };
  const std::shared_ptr<Simulated> simulated(
      new Simulated{.device = sim::Device({.peers = peers, .rank = rank})});
  out.machines.push_back({simulated, simulated->machine.get()});
  out.enter.push_back([] {});
  out.streams.push_back(nullptr);
}

void add_gpu(RankMachines& out, int device) {
  const std::shared_ptr<kernels::Gpu> gpu = kernels::open_gpu(device);
  out.machines.push_back({gpu, &gpu->machine()});
  out.enter.push_back([gpu] { gpu->use(); });
  out.streams.push_back(gpu->stream());
}

void open_simulated(RankMachines& out, int ranks) {
  const auto peers = std::make_shared<sim::PeerMemory>(ranks);
  for (int rank = 0; rank < ranks; ++rank) add_simulated(out, peers, rank);
  out.exchange = std::make_shared<all_reduce::Exchange>(all_reduce::ExchangeOptions{
      .ranks = ranks, .blocks = kSimBlocks, .wait_seconds = kSimWaitSeconds, .overlaps = true});
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

std::string check_way(const RankMachines& ranks, all_reduce::Way way,
                      const std::function<void(int rank)>& load) {
  const int count = static_cast<int>(ranks.machines.size());
  const auto enter = [&](int rank) { ranks.enter[static_cast<std::size_t>(rank)](); };
  std::vector<kernels::Machine*> machines;
  all_reduce::Exchange exchange({.ranks = count, .way = way, .wait_seconds = 5});
  for (int rank = 0; rank < count; ++rank) {
    machines.push_back(ranks.machines[static_cast<std::size_t>(rank)].get());
    enter(rank);
    exchange.join(rank, *machines.back(), kCheckColumns, 64, kCheckColumns);
  }
  return all_reduce::check_values(exchange, machines,
                                  {.columns = kCheckColumns,
                                   .rounds = kCheckRounds,
                                   .gathered = kCheckColumns,
                                   .enter = enter,
                                   .load = load});
}

// Why the GPUs may not write into each other's memory; empty: they may.
std::string refuse_peers(const RankMachines& ranks) {
  if (ranks.devices.back() > 0) {
    const kernels::PeerCheck check = kernels::check_peers(ranks.devices);
    if (!check.wrong.empty()) return "copies " + check.wrong + " arrive with other values";
    if (!check.all) return "the driver does not let every GPU reach every other";
  }
  // Every rank's GPU copies to the next one's while it sums.
  std::vector<std::unique_ptr<kernels::CopyLoad>> loads;
  for (std::size_t rank = 0; rank < ranks.devices.size(); ++rank)
    loads.push_back(
        kernels::make_copy_load(ranks.devices[rank], ranks.devices[(rank + 1) % ranks.devices.size()]));
  for (const all_reduce::Way way : {all_reduce::Way::one_shot, all_reduce::Way::two_shot}) {
    const std::string wrong =
        check_way(ranks, way, [&](int rank) { loads[static_cast<std::size_t>(rank)]->add(); });
    if (!wrong.empty()) return fourfold::format("{}: {}", all_reduce::way_name(way), wrong);
  }
  return {};
}

// A kernel that comes early is dealt out to the SMs that have room just then. Where that is room for one
// block of ours each gets its own; where it is room for two some get both, and the kernel takes as long as
// they do (measured within one H200, docs/decisions/0009).
bool deals_evenly(const plan::ArchFacts& arch) {
  return arch.smem_bytes_per_sm < 2 * plan::Sm120::smem_bytes_per_block;
}

// Which kernel a rank takes goes by its chip; the parts of a sum fit together where all take the same.
void require_alike(const RankMachines& out) {
  const kernels::Machine& first = *out.machines.front();
  for (std::size_t rank = 1; rank < out.machines.size(); ++rank) {
    const kernels::Machine& other = *out.machines[rank];
    if (other.arch().name == first.arch().name && other.sm_count() == first.sm_count()) continue;
    fail_with_hint(Code::unsupported_op, "CUDA_VISIBLE_DEVICES chooses which GPUs the program sees.",
                   "the ranks' GPUs must be alike: GPU {} is {} with {} SMs, GPU {} is {} with {}",
                   out.devices.front(), first.description(), first.sm_count(), out.devices[rank],
                   other.description(), other.sm_count());
  }
}

void open_gpus(RankMachines& out, int ranks, const Listener& listener) {
  const int gpus = out.devices.back() + 1;  // in use
  for (const int device : out.devices) add_gpu(out, device);
  require_alike(out);
  if (gpus < ranks)
    listener.notice(
        fourfold::format("{} ranks on {} GPU{}: those that share one show that it works, not how fast", ranks,
                         gpus, gpus == 1 ? "" : "s"));
  for (int gpu = 0; gpu < gpus; ++gpu)
    if (const std::string far = kernels::why_far(gpu); !far.empty())
      listener.notice(
          fourfold::format("GPU {}: page-locked memory may be at the far end of the machine: {}", gpu, far));
  const std::string why = refuse_peers(out);
  if (!why.empty())
    listener.notice(fourfold::format("the ranks meet in the host's memory, {}: {}", price(ranks), why));
  out.exchange = std::make_shared<all_reduce::Exchange>(
      all_reduce::ExchangeOptions{.ranks = ranks,
                                  .peers = why.empty(),
                                  .overlaps = gpus == ranks && deals_evenly(out.machines.front()->arch())});
}

}  // namespace

std::vector<int> spread_ranks(int ranks, int gpus) {
  std::vector<int> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank * std::min(ranks, gpus) / ranks);
  return devices;
}

std::vector<int> devices_of_ranks(const std::string& backend, int ranks) {
  return spread_ranks(ranks, backend == "sim" ? ranks : kernels::gpu_count());
}

std::vector<backend::MemoryRoom> rank_rooms(const std::vector<int>& devices, double fraction,
                                            const AskMemory& free_and_total) {
  std::vector<backend::MemoryRoom> rooms;
  for (const int device : devices) {
    const kernels::GpuMemory memory = free_and_total(device);
    const auto sharers = static_cast<int>(std::ranges::count(devices, device));
    rooms.push_back(backend::memory_room(memory.free, memory.total, fraction, sharers));
  }
  return rooms;
}

std::shared_ptr<RankMachines> open_rank_machines(const std::string& backend, int ranks,
                                                 const Listener& listener) {
  auto out = std::make_shared<RankMachines>();
  out->devices = devices_of_ranks(backend, ranks);
  if (backend == "sim")
    open_simulated(*out, ranks);
  else
    open_gpus(*out, ranks, listener);
  return out;
}

std::shared_ptr<RankMachines> open_node_machine(const std::string& backend, const PartOf& part, int gpu) {
  auto out = std::make_shared<RankMachines>();
  out->devices = {gpu};
  if (backend == "sim") {
    add_simulated(*out, std::make_shared<sim::PeerMemory>(part.count), part.rank);
    return out;
  }
  if (const int count = kernels::gpu_count(); count > 0 && gpu >= count)
    fail_with_hint(
        Code::unsupported_device, "fourfold rank --gpu K, or as many hosts in --nodes as there are.",
        "rank {} is to have GPU {} of this machine, which has {}, counted from 0", part.rank, gpu, count);
  add_gpu(*out, gpu);
  return out;
}

std::string machine_words(const kernels::Machine& machine) {
  return fourfold::format("{} with {} SMs", machine.arch().name, machine.sm_count());
}

std::string choose_collective(const BackendOptions& options, const Listener& listener) {
  const std::string& asked = options.nodes->collective;
  if (asked != "nccl") {
    listener.fact(fourfold::format(
        "what the ranks' GPUs exchange goes over TCP (--collective {}{}), through page-locked memory of the "
        "host: a thread of each rank looks for it while a step runs, which takes a core",
        asked,
        asked == "auto" ? ": NCCL has not been run on two GPUs yet, and is taken when it is asked for" : ""));
    return "tcp";
  }
  if (options.backend == "sim" && std::getenv("FOURFOLD_NCCL") == nullptr)
    fail_with_hint(Code::unsupported_op,
                   "--collective tcp; or FOURFOLD_NCCL, a library that stands in for it.",
                   "--collective nccl with --backend sim: NCCL has no simulated GPUs");
  const all_reduce::NcclMember library(all_reduce::nccl_file());
  listener.fact(fourfold::format(
      "what the ranks' GPUs exchange is gathered by NCCL {} ({}) and added by our kernels, in the order of "
      "ranks; steps are launched kernel by kernel, without CUDA graphs. Not run on two GPUs yet",
      library.version(), library.file()));
  return "nccl " + library.version();
}

bool records_steps(const std::string& words) { return !words.starts_with("nccl"); }

namespace {

void bridge_ranks(RankMachines& machines, const PartOf& part,
                  const std::shared_ptr<backend::Collective>& collective) {
  const bool is_simulated = machines.streams.front() == nullptr;
  all_reduce::BridgeOptions options{.ranks = part.count, .rank = part.rank};
  if (is_simulated) options.blocks = kSimBlocks;
  options.overlaps = is_simulated || deals_evenly(machines.machines.front()->arch());
  machines.exchange = std::make_shared<all_reduce::BridgedExchange>(
      options, [collective, rank = part.rank](std::string_view where, std::span<const float> mine,
                                              std::span<float> all) {
        collective->all_gather(rank, where, 1, mine, all);
      });
}

}  // namespace

void join_processes(RankMachines& machines, const std::string& words, const PartOf& part,
                    const std::shared_ptr<backend::Collective>& collective) {
  if (words == "tcp") return bridge_ranks(machines, part, collective);
  auto library = std::make_unique<all_reduce::NcclMember>(all_reduce::nccl_file());
  if (const std::string own = "nccl " + library->version(); own != words)
    fail_with_hint(Code::unsupported_op,
                   "The same NCCL on all machines (FOURFOLD_NCCL=path), or --collective tcp.",
                   "the leader has {}, this machine {} ({})", words, own, library->file());
  const bool is_simulated = machines.streams.front() == nullptr;
  const int rank = part.rank;
  all_reduce::NcclExchangeOptions options{.ranks = part.count,
                                          .rank = rank,
                                          .stream = machines.streams.front(),
                                          .is_staged = is_simulated,
                                          .enter = machines.enter.front()};
  if (is_simulated) options.blocks = kSimBlocks;
  machines.exchange = std::make_shared<all_reduce::NcclExchange>(
      options, std::move(library),
      all_reduce::NcclRendezvous{
          .carry = [collective, rank](
                       std::string_view where, std::span<const float> mine,
                       std::span<float> all) { collective->all_gather(rank, where, 1, mine, all); },
          .require_all_there = [collective, rank] { collective->require_all_there(rank); },
          .generation = [collective] { return collective->generation(); },
          .fail_group =
              [rank](const std::string& why) {
                throw backend::RankLost(
                    backend::kNoRank,
                    fourfold::format("{} (rank {}); all ranks are there, and begin anew", why, rank));
              }});
}

std::shared_ptr<kernels::Machine> open_machine(const std::string& backend, int gpu_index) {
  if (backend == "cuda") {
    std::shared_ptr<kernels::Gpu> gpu = kernels::open_gpu(gpu_index);
    return {gpu, &gpu->machine()};
  }
  struct Simulated {
    // Addresses alone: room for the largest model that anybody has the patience for.
    sim::Device device{sim::DeviceOptions{.memory_bytes = std::size_t{4} << 30}};
    std::unique_ptr<kernels::Machine> machine = kernels::make_sim_machine(device);
  };
  const auto simulated = std::make_shared<Simulated>();
  return {simulated, simulated->machine.get()};
}

}  // namespace fourfold::library
