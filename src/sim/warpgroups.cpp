#include "sim/warpgroups.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "sim/block.h"
#include "sim/tensor_math.h"

namespace fourfold::sim {
namespace {

constexpr int kGroupWarps = 4;
constexpr int kWarpRegisterUnit = 8;  // registers are handed out in eights per thread

bool is_poisoned(const float* d, int floats) {
  for (int i = 0; i < floats; ++i)
    if (std::bit_cast<std::uint32_t>(d[i]) != Warpgroups::kPoison) return false;
  return true;
}

// A shared-memory operand with 128-byte rows along K and the 128-byte swizzle.
struct Panel {
  std::uint32_t start;        // of column 0, with the advance along K inside the swizzle atom
  std::uint32_t atom_stride;  // between groups of eight columns

  // Where 16-byte chunk `chunk` (0 or 1) of a k16 step of column `column` lies.
  std::uint32_t chunk_offset(int column, int chunk) const {
    const std::uint32_t plain = start + static_cast<std::uint32_t>(column / 8) * atom_stride +
                                static_cast<std::uint32_t>(column % 8) * 128u + static_cast<std::uint32_t>(chunk) * 16u;
    return plain ^ ((plain >> 7 & 7u) << 4);
  }
};

}  // namespace

void Warpgroups::reset() {
  logs_.assign((block_.warps().size() + kGroupWarps - 1) / kGroupWarps, Log{});
  int per_thread = block_.config().registers_per_thread;
  if (per_thread == 0) per_thread = std::min(256, 65536 / block_.config().threads / kWarpRegisterUnit * kWarpRegisterUnit);
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
    block_.fault(FaultKind::divergent_collective, &thread, site,
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
                   format("{} here, but another warp of the same warpgroup passed {} at {} as its step {}", name_of(op),
                          name_of(step.op), block_.site_text(step.site), passed));
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

// The accumulator in flight that these lanes mean, or a new one whose values are taken from the kernel.
Accumulator& Warpgroups::accumulator(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site) {
  const int floats = lanes[0]->n / 2;
  for (Accumulator& open : warp.accumulators) {
    bool same = open.floats == floats;
    for (unsigned lane = 0; lane < 32; ++lane) {
      same = same && open.d[lane] == lanes[lane]->d;
      if (!is_poisoned(open.d[lane], open.floats))
        block_.fault(FaultKind::early_accumulator, &warp.threads[lane], site,
                     format("the kernel wrote to an accumulator of the wgmma at {}, which is still in flight",
                            block_.site_text(open.site)));
    }
    if (same) return open;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (lanes[lane]->d < open.d[lane] + open.floats && open.d[lane] < lanes[lane]->d + floats)
        block_.fault(FaultKind::early_accumulator, &warp.threads[lane], site,
                     format("this accumulator overlaps, but is not, the one of the wgmma in flight at {}",
                            block_.site_text(open.site)));
  }
  Accumulator& fresh = warp.accumulators.emplace_back();
  fresh.floats = floats;
  fresh.values.resize(32 * static_cast<std::size_t>(floats));
  for (unsigned lane = 0; lane < 32; ++lane) {
    fresh.d[lane] = lanes[lane]->d;
    float* const values = &fresh.values[lane * static_cast<std::size_t>(floats)];
    std::copy(fresh.d[lane], fresh.d[lane] + floats, values);
    std::fill(fresh.d[lane], fresh.d[lane] + floats, std::bit_cast<float>(kPoison));
  }
  return fresh;
}

void Warpgroups::issue(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site) {
  const int n = lanes[0]->n;
  const std::uint64_t descriptor = lanes[0]->descriptor;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (lanes[lane]->descriptor != descriptor)
      block_.fault(FaultKind::divergent_collective, &warp.threads[lane], site,
                   "wgmma_bf16 with another descriptor than lane 0");
  pass(warp, Collective::wgmma_bf16, site, descriptor * 31u + static_cast<std::uint64_t>(n));
  const Thread& thread = warp.threads[0];
  if (!warp.wgmma_fenced)
    block_.fault(FaultKind::register_rule, &thread, site,
                 "wgmma_bf16 without a wgmma_fence since the start or the last wgmma_wait: the tensor core may read its registers before they are written");
  if (n < 8 || n > 256 || n % 8 != 0)
    block_.fault(FaultKind::bad_descriptor, &thread, site, format("wgmma_bf16 with N = {}; it is 8 to 256, in eights", n));
  // Bits 0-13 start / 16, 16-29 leading offset (unused), 32-45 stride / 16, 49-51 base offset, 62-63 swizzle.
  constexpr std::uint64_t kKnownBits = 0x3FFFull | 0x3FFFull << 16 | 0x3FFFull << 32 | 3ull << 62;
  if ((descriptor & ~kKnownBits) != 0 || descriptor >> 62 != 1)
    block_.fault(FaultKind::bad_descriptor, &thread, site,
                 "only K-major descriptors with the 128-byte swizzle and no base offset can be decoded");
  const Panel panel{static_cast<std::uint32_t>(descriptor & 0x3FFFu) << 4,
                    static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFFu) << 4};
  if ((panel.start & 0x380u) != 0 || (n > 8 && (panel.atom_stride == 0 || panel.atom_stride % 1024 != 0)))
    block_.fault(FaultKind::misaligned, &thread, site,
                 format("swizzled panels start and step at multiples of 1,024 bytes; this one starts at {} and steps by {}",
                        with_commas(panel.start), with_commas(panel.atom_stride)));

  // Lanes that know the same need not be asked twice.
  const Thread* askers[32];
  int asker_count = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (lane == 0 || !(warp.threads[lane].known == askers[asker_count - 1]->known))
      askers[asker_count++] = &warp.threads[lane];
  const Epoch reader = make_epoch(block_.warpgroup_party(warp.index), warp.wgmma_committed + 1);

  const std::uint32_t* a[32];
  for (unsigned lane = 0; lane < 32; ++lane) a[lane] = lanes[lane]->a;
  Bf16Rows rows;
  gather_rows(a, rows);
  Accumulator& open = accumulator(warp, lanes, site);
  open.last_group = warp.wgmma_committed;
  open.site = site;
  for (int tile = 0; tile < n / 8; ++tile) {
    Bf16Columns columns;
    for (int column = 0; column < 8; ++column)
      for (int chunk = 0; chunk < 2; ++chunk) {
        const std::uint32_t offset = panel.chunk_offset(8 * tile + column, chunk);
        if (!block_.shared().contains(offset, 16))
          block_.fault(FaultKind::out_of_bounds, &thread, site,
                       format("wgmma_bf16 reads shared byte {}; the block has {} bytes", with_commas(offset),
                              with_commas(block_.shared().bytes())));
        SharedConflict conflict;
        for (int i = 0; i < asker_count; ++i)
          if (!block_.shared().read_async(block_.view(*askers[i]), offset, reader, site, conflict))
            block_.fault(conflict, askers[i], site, "wgmma_bf16");
        std::uint16_t bits[8];
        std::memcpy(bits, block_.shared().data() + offset, sizeof bits);
        for (int k = 0; k < 8; ++k) columns.bits[8 * chunk + k][column] = bits[k];
      }
    prepare(columns);
    float c[16][8];
    const auto at = [&](int lane, int i) -> float& {
      return open.values[static_cast<std::size_t>(lane * open.floats + 4 * tile + i)];
    };
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) c[output_row(lane, i)][output_column(lane, i)] = at(lane, i);
    multiply(rows, columns, c);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) at(lane, i) = c[output_row(lane, i)][output_column(lane, i)];
  }
  IssuedWgmma& issued = warp.issued.emplace_back();
  issued.group = warp.wgmma_committed;
  issued.site = site;
  for (unsigned lane = 0; lane < 32; ++lane) {
    issued.a[lane] = lanes[lane]->a;
    std::memcpy(issued.a_values[lane], lanes[lane]->a, sizeof issued.a_values[lane]);
  }
  ++warp.wgmma_in_group;
  ++block_.stats().wgmma;
}

void Warpgroups::commit(Warp& warp, SiteTable::Id site) {
  pass(warp, Collective::wgmma_commit, site, 0);
  ++warp.wgmma_committed;
  warp.wgmma_in_group = 0;
  const int first = warp.index / kGroupWarps * kGroupWarps;
  for (int i = first; i < first + kGroupWarps; ++i) {
    Warp& other = block_.warps()[static_cast<std::size_t>(i)];
    if (&other != &warp && other.arrived == ~0u && other.op == Collective::wgmma_wait && group_committed(other)) {
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
