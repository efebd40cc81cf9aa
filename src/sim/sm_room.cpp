#include "sim/sm_room.h"

#include <algorithm>

#include "base/format.h"
#include "plan/budget.h"
#include "sim/fault.h"

namespace fourfold::sim {

BlockNeeds needs_of(const LaunchConfig& config) {
  if (config.chip == nullptr) return {};
  const plan::ArchFacts& chip = *config.chip;
  const int registers = config.registers_per_thread;
  BlockNeeds needs;
  needs.shared_bytes = plan::round_up(config.shared_bytes + chip.smem_reserved_bytes_per_block,
                                      chip.smem_allocation_unit_bytes);
  needs.warps = plan::warps_of(config.threads);
  needs.registers = plan::registers_of_block(config.threads, registers);
  needs.most_an_sm = plan::blocks_per_sm(chip, config.threads, registers, config.shared_bytes);
  return needs;
}

SmRoom::SmRoom(const plan::ArchFacts* chip, int sms)
    : chip_(chip), sms_(static_cast<std::size_t>(chip != nullptr ? std::max(sms, 1) : 1)) {}

bool SmRoom::fits(const std::vector<Resident>& sm, std::uint32_t grid, const BlockNeeds& needs) const {
  if (chip_ == nullptr) return true;
  BlockNeeds sum = needs;
  int of_grid = 1;
  for (const Resident& resident : sm) {
    sum.shared_bytes += resident.needs.shared_bytes;
    sum.warps += resident.needs.warps;
    sum.registers += resident.needs.registers;
    of_grid += resident.grid == grid;
  }
  return of_grid <= needs.most_an_sm && static_cast<int>(sm.size()) < chip_->blocks_per_sm_max &&
         sum.shared_bytes <= chip_->smem_bytes_per_sm && sum.warps <= chip_->warps_per_sm &&
         (sum.registers <= chip_->registers_per_sm || of_grid == static_cast<int>(sm.size()) + 1);
}

int SmRoom::take(std::uint32_t grid, const BlockNeeds& needs) {
  int best = -1;
  for (std::size_t sm = 0; sm < sms_.size(); ++sm)
    if (fits(sms_[sm], grid, needs) &&
        (best < 0 || sms_[sm].size() < sms_[static_cast<std::size_t>(best)].size()))
      best = static_cast<int>(sm);
  if (best >= 0) sms_[static_cast<std::size_t>(best)].push_back({grid, needs});
  return best;
}

void SmRoom::give_back(int sm, std::uint32_t grid) {
  auto& residents = sms_[static_cast<std::size_t>(sm)];
  const auto found = std::find_if(residents.begin(), residents.end(),
                                  [&](const Resident& resident) { return resident.grid == grid; });
  residents.erase(found);
}

std::string SmRoom::refusal(const BlockNeeds& needs) const {
  if (chip_ == nullptr) return "";
  int bytes = 0, warps = 0;
  for (const Resident& resident : sms_.front()) {
    bytes += resident.needs.shared_bytes;
    warps += resident.needs.warps;
  }
  return format(
      "an SM of {} has {} bytes of shared memory and {} warps; a block takes {} and {}, and the "
      "blocks on SM 0 have {} and {}",
      chip_->name, with_commas(chip_->smem_bytes_per_sm), chip_->warps_per_sm,
      with_commas(needs.shared_bytes), needs.warps, with_commas(bytes), warps);
}

void require_all_resident(const LaunchConfig& config) {
  if (config.chip == nullptr) return;
  const BlockNeeds needs = needs_of(config);
  const int resident = needs.most_an_sm * std::max(config.sms, 1);
  if (config.blocks <= resident) return;
  FaultPlace place;
  place.kernel = config.name;
  throw Fault(FaultKind::deadlock, place,
              format("its {} blocks wait for each other, but only {} can be there at once: {} SMs of {} with "
                     "{} each (a block takes {} of {} bytes of shared memory, {} of {} warps)",
                     config.blocks, resident, std::max(config.sms, 1), config.chip->name, needs.most_an_sm,
                     with_commas(needs.shared_bytes), with_commas(config.chip->smem_bytes_per_sm),
                     needs.warps, config.chip->warps_per_sm));
}

}  // namespace fourfold::sim
