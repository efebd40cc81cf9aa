#include "sim/warpgroups.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "sim/block.h"

namespace fourfold::sim {
namespace {

constexpr int kGroupWarps = 4;
constexpr int kWarpRegisterUnit = 8;  // registers are handed out in eights per thread

}  // namespace

bool Warpgroups::is_poisoned(const float* d, int floats) {
  for (int i = 0; i < floats; ++i)
    if (std::bit_cast<std::uint32_t>(d[i]) != kPoison) return false;
  return true;
}

void Warpgroups::reset() {
  logs_.assign((block_.warps().size() + kGroupWarps - 1) / kGroupWarps, Log{});
  int per_thread = block_.config().registers_per_thread;
  if (per_thread == 0)
    per_thread = std::min(256, 65536 / block_.config().threads / kWarpRegisterUnit * kWarpRegisterUnit);
  per_thread = (per_thread + kWarpRegisterUnit - 1) / kWarpRegisterUnit * kWarpRegisterUnit;
  for (Warp& warp : block_.warps()) {
    warp.registers = per_thread;
    warp.registers_wanted = 0;
  }
  registers_free_ = 0;  // the pool of a block is what it was launched with
}

// The warps of a group pass the same steps in the same order.
void Warpgroups::pass(Warp& warp, Collective op, SiteTable::Id site, std::uint64_t argument) {
  const Thread& thread = warp.threads[0];
  if (block_.warps().size() % kGroupWarps != 0)
    block_.fault(
        FaultKind::divergent_collective, &thread, site,
        format("{} is for groups of four warps; the block has {} warps", name_of(op), block_.warps().size()));
  Log& log = logs_[static_cast<std::size_t>(warp.index / kGroupWarps)];
  std::uint64_t& passed = log.passed[warp.index % kGroupWarps];
  const std::uint64_t at = passed - log.dropped;
  if (at == log.steps.size()) {
    log.steps.push_back({op, site, argument});
  } else {
    const Step& step = log.steps[at];
    if (step.op != op || step.site != site)
      block_.fault(FaultKind::divergent_collective, &thread, site,
                   format("{} here, but another warp of the same warpgroup passed {} at {} as its step {}",
                          name_of(op), name_of(step.op), block_.site_text(step.site), passed));
    if (step.argument != argument)
      block_.fault(FaultKind::divergent_collective, &thread, site,
                   format("{} with other operands than another warp of the same warpgroup", name_of(op)));
  }
  ++passed;
  while (!log.steps.empty() && *std::min_element(log.passed, log.passed + kGroupWarps) > log.dropped) {
    log.steps.pop_front();
    ++log.dropped;
  }
}

void Warpgroups::fence(Warp& warp, SiteTable::Id site) {
  pass(warp, Collective::wgmma_fence, site, 0);
  warp.wgmma_fenced = true;
}

void Warpgroups::commit(Warp& warp, SiteTable::Id site) {
  pass(warp, Collective::wgmma_commit, site, 0);
  ++warp.wgmma_committed;
  const int first = warp.index / kGroupWarps * kGroupWarps;
  for (int i = first; i < first + kGroupWarps; ++i) {
    Warp& other = block_.warps()[static_cast<std::size_t>(i)];
    if (&other != &warp && other.arrived == ~0u && other.op == Collective::wgmma_wait &&
        group_committed(other)) {
      deliver(other);
      block_.wake(other);
    }
  }
}

// A group belongs to the warpgroup: it is complete when the parts of all four warps are.
bool Warpgroups::group_committed(const Warp& warp) const {
  const int first = warp.index / kGroupWarps * kGroupWarps;
  for (int i = first; i < first + kGroupWarps; ++i)
    if (block_.warps()[static_cast<std::size_t>(i)].wgmma_committed < warp.wgmma_target) return false;
  return true;
}

bool Warpgroups::wait(Warp& warp, int pending, SiteTable::Id site) {
  pass(warp, Collective::wgmma_wait, site, static_cast<std::uint64_t>(pending));
  const auto left = static_cast<std::uint32_t>(pending);
  warp.wgmma_target = warp.wgmma_committed > left ? warp.wgmma_committed - left : 0;
  warp.wgmma_fenced = false;
  if (!group_committed(warp)) return false;
  deliver(warp);
  return true;
}

void Warpgroups::check_operands(Warp& warp, const IssuedWgmma& issued) {
  for (unsigned lane = 0; lane < 32; ++lane)
    if (std::memcmp(issued.a[lane], issued.a_values[lane], sizeof issued.a_values[lane]) != 0)
      block_.fault(FaultKind::changed_operand, &warp.threads[lane], issued.site,
                   "the A registers of this wgmma changed before a wgmma_wait covered it");
}

void Warpgroups::deliver(Warp& warp) {
  const std::uint32_t target = warp.wgmma_target;
  for (const IssuedWgmma& issued : warp.issued)
    if (issued.group < target) check_operands(warp, issued);
  std::erase_if(warp.issued, [target](const IssuedWgmma& issued) { return issued.group < target; });
  for (const Accumulator& open : warp.accumulators) {
    if (open.last_group >= target) continue;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!is_poisoned(open.d[lane], open.floats))
        block_.fault(FaultKind::early_accumulator, &warp.threads[lane], open.site,
                     "the kernel wrote to the accumulator of this wgmma before a wgmma_wait covered it");
      const float* const values = &open.values[lane * static_cast<std::size_t>(open.floats)];
      std::copy(values, values + open.floats, open.d[lane]);
    }
  }
  std::erase_if(warp.accumulators, [target](const Accumulator& open) { return open.last_group < target; });
  block_.learn(warp, block_.warpgroup_party(warp.index), target);
}

void Warpgroups::check_registers(Warp& warp, int count, SiteTable::Id site) {
  if (count < 24 || count > 256 || count % kWarpRegisterUnit != 0)
    block_.fault(FaultKind::register_rule, &warp.threads[0], site,
                 format("{} registers; setmaxnreg takes 24 to 256, in eights", count));
}

bool Warpgroups::raise_registers(Warp& warp, int count, SiteTable::Id site) {
  check_registers(warp, count, site);
  pass(warp, Collective::raise_registers, site, static_cast<std::uint64_t>(count));
  if (count < warp.registers)
    block_.fault(FaultKind::register_rule, &warp.threads[0], site,
                 format("raise_registers to {}, but the warp has {}", count, warp.registers));
  const int more = count - warp.registers;
  if (more > registers_free_) {
    warp.registers_wanted = count;
    return false;
  }
  registers_free_ -= more;
  warp.registers = count;
  return true;
}

void Warpgroups::drop_registers(Warp& warp, int count, SiteTable::Id site) {
  check_registers(warp, count, site);
  pass(warp, Collective::drop_registers, site, static_cast<std::uint64_t>(count));
  if (count > warp.registers)
    block_.fault(FaultKind::register_rule, &warp.threads[0], site,
                 format("drop_registers to {}, but the warp has {}", count, warp.registers));
  registers_free_ += warp.registers - count;
  warp.registers = count;
  for (Warp& other : block_.warps()) {
    const int more = other.registers_wanted - other.registers;
    if (other.registers_wanted == 0 || more > registers_free_) continue;
    registers_free_ -= more;
    other.registers = other.registers_wanted;
    other.registers_wanted = 0;
    block_.wake(other);
  }
}

void Warpgroups::check_end() {
  for (const Log& log : logs_)
    if (!log.steps.empty())
      block_.fault(FaultKind::divergent_collective, nullptr, log.steps.front().site,
                   format("only some warps of a warpgroup passed {}", name_of(log.steps.front().op)));
  for (const Warp& warp : block_.warps())
    if (!warp.issued.empty())
      block_.fault(FaultKind::early_accumulator, &warp.threads[0], warp.issued.front().site,
                   "the block ended without a wgmma_wait that covers this wgmma");
}

std::string Warpgroups::describe_wait(const Warp& warp) const {
  if (warp.op == Collective::wgmma_wait)
    return ": other warps of the warpgroup have not committed as many groups";
  if (warp.op == Collective::raise_registers)
    return format(": wants {} registers a thread and has {}; {} are free per lane", warp.registers_wanted,
                  warp.registers, registers_free_);
  return {};
}

}  // namespace fourfold::sim
