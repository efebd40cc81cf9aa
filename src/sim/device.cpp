#include "sim/device.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "sim/block.h"
#include "sim/residents.h"

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

Device::~Device() = default;

void Device::write_from_host(void* to, const void* from, std::size_t bytes) {
  if (peers_->contains(to, bytes)) return peers_->write_from_host(to, from, bytes);
  memory_.mark_written(to, bytes);
  std::memcpy(to, from, bytes);
}

void Device::read_to_host(void* to, const void* from, std::size_t bytes) const {
  if (residents_ != nullptr)
    residents_->deadlock("the host reads, and a grid still waits for one to be launched behind it");
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
  if (config.together) require_all_resident(config);
}

LaunchStats Device::run(const LaunchConfig& asked, Kernel kernel) {
  LaunchConfig config = asked;
  if (config.seed == 0) config.seed = seed_;
  check_config(config);
  const Grid grid{.id = last_grid_ + 1,
                  .visible_at_start = config.pdl ? std::max(released_, complete_) : last_grid_};
  auto launched =
      std::make_unique<Launched>(config, std::move(kernel), memory_, *peers_, rank_, sites_, grid);
  if (mutation_) {
    launched->context.mutated = true;
    launched->context.mutated_site = sites_.find_or_add(mutation_->site.file, mutation_->site.line);
    launched->context.mutated_op = mutation_->site.op;
    launched->context.mutation = mutation_->kind;
  }
  sites_.forget_executed();
  last_grid_ = grid.id;

  launched->order.resize(static_cast<std::size_t>(config.blocks));
  std::iota(launched->order.begin(), launched->order.end(), 0);
  if (config.seed != 0) {
    Dice dice(config.seed, std::uint64_t{grid.id} << 32);
    for (std::size_t i = launched->order.size(); i > 1; --i)
      std::swap(launched->order[i - 1], launched->order[dice.below(static_cast<std::uint32_t>(i))]);
  }
  try {
    if (residents_ != nullptr && !config.pdl)
      residents_->deadlock(format("{}, launched behind it, starts when it has ended", config.name));
    if (residents_ == nullptr)
      residents_ = std::make_unique<Residents>(stacks_, *peers_, rank_, config.chip, config.sms);
    residents_->add(std::move(launched));
    run_residents();
  } catch (...) {
    LaunchStats stats;
    remember_sites(stats);
    released_ = complete_ = last_grid_;  // whoever goes on after a fault starts a new chain
    residents_.reset();
    throw;
  }
  return end_of_launch();
}

void Device::run_residents() {
  if (!residents_->run()) {
    if (residents_->may_wait_for_successor()) return;
    residents_->deadlock("every block looks for something that nobody brings");
  }
  // The chain of dependent launches holds only while every link waits for the one before it.
  for (const auto& launched : residents_->launches())
    if (launched->config.pdl && !launched->grid.waited)
      throw Fault(
          FaultKind::predecessor_race, place_of(launched->config),
          format("grid {} was launched as a dependent but never waited: grid {} could overtake grid {}",
                 launched->grid.id, launched->grid.id + 1, launched->grid.id - 1));
}

LaunchStats Device::end_of_launch() {
  Launched& newest = *residents_->launches().back();
  LaunchStats stats = std::move(newest.stats);
  released_ = newest.grid.released;
  remember_sites(stats);
  for (std::size_t site = 0; site < newest.traffic.size(); ++site) {
    const BankTraffic& traffic = newest.traffic[site];
    if (traffic.accesses)
      stats.traffic.push_back({std::string(sites_.file(static_cast<SiteTable::Id>(site))),
                               sites_.line(static_cast<SiteTable::Id>(site)), traffic.accesses,
                               traffic.wavefronts, traffic.ideal});
  }
  if (newest.grid.complete) residents_.reset();
  return stats;
}

void Device::synchronize() {
  if (residents_ != nullptr) {
    const std::unique_ptr<Residents> stuck = std::move(residents_);
    stuck->deadlock("the host waits, and nothing was launched behind a grid that waits for its successor");
  }
  complete_ = last_grid_;
}

void Device::remember_sites(LaunchStats& stats) {
  stats.sites = sites_.executed();
  for (const SyncSite& site : stats.sites)
    if (std::find(executed_.begin(), executed_.end(), site) == executed_.end()) executed_.push_back(site);
}

}  // namespace fourfold::sim
