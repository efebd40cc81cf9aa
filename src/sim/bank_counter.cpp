#include "sim/bank_counter.h"

#include <algorithm>

namespace fourfold::sim {

namespace {

// What most accesses are: no bank has two.
bool are_neighbours(const std::uint32_t (&offset)[32], std::uint32_t bytes) {
  std::uint32_t differ = offset[0] % bytes;
  for (std::uint32_t lane = 0; lane < 32; ++lane) differ |= offset[lane] - offset[0] - lane * bytes;
  return differ == 0;
}

}  // namespace

BankTraffic count_wavefronts(const std::uint32_t (&offset)[32], std::uint32_t lanes, std::uint32_t bytes) {
  // A pass moves 128 bytes: 32 banks of 4, or 16 pairs for 8-byte accesses, or 8 quadruples for 16-byte ones.
  const unsigned lanes_per_pass = 128u / bytes;
  if (lanes == ~0u && are_neighbours(offset, bytes)) return {1, 32 / lanes_per_pass, 32 / lanes_per_pass};
  BankTraffic result{1, 0, 0};
  for (unsigned first = 0; first < 32; first += lanes_per_pass) {
    std::uint32_t unit_in_bank[32][32];
    std::uint8_t depth[32] = {};
    unsigned deepest = 0;
    for (unsigned lane = first; lane < first + lanes_per_pass; ++lane) {
      if (!(lanes >> lane & 1u)) continue;
      const std::uint32_t unit = offset[lane] / bytes;
      const unsigned bank = unit % lanes_per_pass;
      unsigned at = 0;
      while (at < depth[bank] && unit_in_bank[bank][at] != unit) ++at;
      if (at == depth[bank]) {
        unit_in_bank[bank][at] = unit;
        depth[bank] = static_cast<std::uint8_t>(at + 1);
        deepest = std::max(deepest, at + 1);
      }
    }
    result.wavefronts += deepest;
    result.ideal += deepest ? 1 : 0;
  }
  return result;
}

// The first group of this line that the lane is not in yet, or a new one at the end. A new one that other
// lanes did not expect here leaves the guess where it was.
void BankCounter::record_elsewhere(unsigned lane, std::uint32_t& next, SiteTable::Id site,
                                   std::uint32_t offset, std::uint32_t bytes) {
  std::uint32_t at = next < used_ ? 0 : used_;
  while (at < used_ && !groups_[at].takes(lane, site, bytes)) ++at;
  if (at == kGroupsMax) {
    ++uncounted_;
    return;
  }
  const bool expected = at < used_ || next >= used_;
  if (at == used_) {
    ++used_;
    if (at == groups_.size()) groups_.emplace_back();
    groups_[at].lanes = 0;
    groups_[at].site = site;
    groups_[at].bytes = static_cast<std::uint16_t>(bytes);
  }
  groups_[at].add(lane, offset);
  if (expected) next = at + 1;
}

void BankCounter::flush(std::vector<BankTraffic>& traffic) {
  for (std::uint32_t i = 0; i < used_; ++i) {
    const Group& group = groups_[i];
    if (group.site >= traffic.size()) traffic.resize(group.site + 1u);
    const BankTraffic passes = count_wavefronts(group.offset, group.lanes, group.bytes);
    BankTraffic& sum = traffic[group.site];
    sum.accesses += passes.accesses;
    sum.wavefronts += passes.wavefronts;
    sum.ideal += passes.ideal;
  }
  used_ = 0;
}

}  // namespace fourfold::sim
