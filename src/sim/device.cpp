#include "sim/device.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "sim/block.h"

namespace fourfold::sim {
namespace {

FaultPlace place_of(const LaunchConfig& config) {
  FaultPlace place;
  place.kernel = config.name;
  return place;
}

// Sanitizers make frames several times larger.
std::size_t scaled_stack(std::size_t bytes) { return built_with_sanitizer() ? 4 * bytes : bytes; }

}  // namespace

Device::Device(DeviceOptions options)
    : memory_(options.memory_bytes),
      peers_(options.peers != nullptr ? options.peers : std::make_shared<PeerMemory>()),
      rank_(options.rank),
      stacks_(scaled_stack(options.stack_bytes)) {}

void Device::write_from_host(void* to, const void* from, std::size_t bytes) {
  if (peers_->contains(to, bytes)) return peers_->write_from_host(to, from, bytes);
  memory_.mark_written(to, bytes);
  std::memcpy(to, from, bytes);
}

void Device::read_to_host(void* to, const void* from, std::size_t bytes) const {
  if (peers_->contains(from, bytes)) return peers_->read_to_host(to, from, bytes);
  if (!memory_.contains(from, bytes))
    throw Fault(FaultKind::out_of_bounds, {},
                format("the host reads {} bytes at {}", bytes, memory_.describe(from)));
  if (const void* const unwritten = memory_.first_unwritten(from, bytes))
    throw Fault(FaultKind::unwritten_read, {},
                format("the host reads {}: nobody ever wrote these bytes", memory_.describe(unwritten)));
  std::memcpy(to, from, bytes);
}

void Device::check_config(const LaunchConfig& config) const {
  if (config.threads < 32 || config.threads > 1024 || config.threads % 32 != 0)
    fail(Code::invalid_request, "{}: {} threads a block; the simulator takes 32 to 1,024, in whole warps",
         config.name, config.threads);
  if (config.blocks < 1 || static_cast<std::uint32_t>(config.blocks) > GlobalMemory::kBlocksMax)
    fail(Code::invalid_request, "{}: {} blocks; the simulator takes 1 to {}", config.name, config.blocks,
         GlobalMemory::kBlocksMax);
  if (config.shared_bytes < 0 || config.shared_bytes > config.shared_limit_bytes)
    throw Fault(FaultKind::shared_limit, place_of(config),
                format("asks for {} bytes of shared memory; a block of this chip has {}",
                       with_commas(config.shared_bytes), with_commas(config.shared_limit_bytes)));
  const int registers = (config.registers_per_thread + 7) / 8 * 8;
  if (registers < 0 || registers > 256 || registers * config.threads > 65536)
    throw Fault(
        FaultKind::register_rule, place_of(config),
        format("asks for {} registers a thread with {} threads; a block has 65,536, a thread at most 255",
               config.registers_per_thread, config.threads));
}

LaunchStats Device::run(const LaunchConfig& asked, Kernel kernel) {
  LaunchConfig config = asked;
  if (config.seed == 0) config.seed = seed_;
  check_config(config);
  LaunchStats stats;
  std::vector<BankTraffic> traffic;
  Grid grid{.id = last_grid_ + 1,
            .visible_at_start = config.pdl ? std::max(released_, complete_) : last_grid_};
  LaunchContext context{.config = config,
                        .kernel = kernel,
                        .memory = memory_,
                        .peers = *peers_,
                        .rank = rank_,
                        .sites = sites_,
                        .grid = grid,
                        .stats = stats,
                        .traffic = traffic};
  if (mutation_) {
    context.mutated = true;
    context.mutated_site = sites_.find_or_add(mutation_->site.file, mutation_->site.line);
    context.mutated_op = mutation_->site.op;
    context.mutation = mutation_->kind;
  }
  sites_.forget_executed();
  last_grid_ = grid.id;

  std::vector<int> order(static_cast<std::size_t>(config.blocks));
  std::iota(order.begin(), order.end(), 0);
  if (config.seed != 0) {
    Dice dice(config.seed, std::uint64_t{grid.id} << 32);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[dice.below(static_cast<std::uint32_t>(i))]);
  }
  try {
    if (config.together) {
      run_together(context, order);
    } else {
      Block block(context, stacks_);
      for (const int index : order) block.run(index);
    }
    // The chain of dependent launches holds only while every link waits for the one before it.
    if (config.pdl && !grid.waited)
      throw Fault(
          FaultKind::predecessor_race, place_of(config),
          format("grid {} was launched as a dependent but never waited: grid {} could overtake grid {}",
                 grid.id, grid.id + 1, grid.id - 1));
  } catch (...) {
    remember_sites(stats);
    released_ = complete_ = last_grid_;  // whoever goes on after a fault starts a new chain
    throw;
  }
  released_ = grid.released;
  remember_sites(stats);
  for (std::size_t site = 0; site < traffic.size(); ++site)
    if (traffic[site].accesses)
      stats.traffic.push_back({std::string(sites_.file(static_cast<SiteTable::Id>(site))),
                               sites_.line(static_cast<SiteTable::Id>(site)), traffic[site].accesses,
                               traffic[site].wavefronts, traffic[site].ideal});
  return stats;
}

// Whoever can go on does, in an order of the seed's; when all look for what others bring, the other ranks
// run.
void Device::run_together(LaunchContext& context, const std::vector<int>& order) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (const int index : order) {
    const std::size_t first_stack = blocks.size() * static_cast<std::size_t>(context.config.threads);
    blocks.push_back(std::make_unique<Block>(context, stacks_, first_stack));
    blocks.back()->start(index);
  }
  Dice dice(context.config.seed, (std::uint64_t{context.grid.id} << 32) + 0xFFFFFFFFu);
  std::size_t at = 0, without_end = 0;
  while (!blocks.empty()) {
    at =
        context.config.seed != 0 ? dice.below(static_cast<std::uint32_t>(blocks.size())) : at % blocks.size();
    try {
      if (blocks[at]->go_on()) {
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
    } catch (...) {
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
      for (const auto& block : blocks) block->abandon();
      throw;
    }
    ++at;
    if (++without_end % (blocks.size() + 1) == 0) peers_->give_way(rank_);
  }
}

void Device::remember_sites(LaunchStats& stats) {
  stats.sites = sites_.executed();
  for (const SyncSite& site : stats.sites)
    if (std::find(executed_.begin(), executed_.end(), site) == executed_.end()) executed_.push_back(site);
}

}  // namespace fourfold::sim
