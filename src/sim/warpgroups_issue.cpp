// wgmma at its issue: what is checked then, what it reads, what it computes.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "sim/block.h"
#include "sim/tensor_math.h"
#include "sim/warpgroups.h"

namespace fourfold::sim {

// A shared-memory operand with the 128-byte swizzle, and 128-byte rows along K or along N.
struct Warpgroups::Panel {
  std::uint32_t start;         // of column 0, with the advance along K inside the swizzle atom
  std::uint32_t atom_stride;   // between groups of eight columns; N-major: eight rows of K
  std::uint32_t panel_stride;  // N-major: between groups of 64 columns

  // Where 16-byte chunk `chunk` (0 or 1) of a step of column `column` lies. The swizzle works on the
  // final address.
  std::uint32_t chunk_offset(int column, int chunk) const {
    return swizzled(start + static_cast<std::uint32_t>(column / 8) * atom_stride +
                    static_cast<std::uint32_t>(column % 8) * 128u + static_cast<std::uint32_t>(chunk) * 16u);
  }
  // N-major: where row k of a step has its eight columns from `column` on.
  std::uint32_t row_offset(int k, int column) const {
    return swizzled(start + static_cast<std::uint32_t>(column / 64) * panel_stride +
                    static_cast<std::uint32_t>(k / 8) * atom_stride +
                    static_cast<std::uint32_t>(k % 8) * 128u +
                    static_cast<std::uint32_t>(column % 64 / 8) * 16u);
  }

 private:
  static std::uint32_t swizzled(std::uint32_t plain) { return plain ^ ((plain >> 7 & 7u) << 4); }
};

namespace {

Collective op_of(const WgmmaLane& lane) {
  if (lane.numbers == WgmmaNumbers::bf16_columns) return Collective::wgmma_bf16_columns;
  return lane.numbers == WgmmaNumbers::bf16 ? Collective::wgmma_bf16 : Collective::wgmma_e4m3;
}

// c = rows x columns + c of one tile of eight columns, whatever the numbers.
template <class Rows, class Columns>
void multiply_tile(const Rows& rows, const Columns& columns, bool adds, Accumulator& open, int tile) {
  const auto value = [&](int lane, int i) -> float& {
    return open.values[static_cast<std::size_t>(lane * open.floats + 4 * tile + i)];
  };
  float c[16][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) c[output_row(lane, i)][output_column(lane, i)] = adds ? value(lane, i) : 0.0f;
  multiply(rows, columns, c);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) value(lane, i) = c[output_row(lane, i)][output_column(lane, i)];
}

Bf16Columns bf16_columns(const unsigned char (&bytes)[8][32]) {
  Bf16Columns columns;
  for (int column = 0; column < 8; ++column) {
    std::uint16_t bits[16];
    std::memcpy(bits, bytes[column], sizeof bits);
    for (int k = 0; k < 16; ++k) columns.bits[k][column] = bits[k];
  }
  prepare(columns);
  return columns;
}

}  // namespace

// The lanes of a warp that know different things, and on whose behalf they read.
struct Warpgroups::Readers {
  const Thread* thread[32];
  int count = 0;
  Epoch epoch;
};

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

// Everything that can be wrong with the instruction itself.
Warpgroups::Panel Warpgroups::check_issue(Warp& warp, const WgmmaLane* const (&lanes)[32],
                                          SiteTable::Id site) {
  const int n = lanes[0]->n;
  const std::uint64_t descriptor = lanes[0]->descriptor;
  const std::string_view name = name_of(op_of(*lanes[0]));
  for (unsigned lane = 0; lane < 32; ++lane)
    if (lanes[lane]->descriptor != descriptor)
      block_.fault(FaultKind::divergent_collective, &warp.threads[lane], site,
                   format("{} with another descriptor than lane 0", name));
  pass(warp, op_of(*lanes[0]), site, descriptor * 31u + static_cast<std::uint64_t>(n));
  const Thread& thread = warp.threads[0];
  if (!warp.wgmma_fenced)
    block_.fault(
        FaultKind::register_rule, &thread, site,
        format("{} without a wgmma_fence since the start or the last wgmma_wait: the tensor core may "
               "read its registers before they are written",
               name));
  if (n < 8 || n > 256 || n % 8 != 0)
    block_.fault(FaultKind::bad_descriptor, &thread, site,
                 format("{} with N = {}; it is 8 to 256, in eights", name, n));
  // Bits 0-13 start / 16, 16-29 leading offset / 16 (N-major alone uses it), 32-45 stride / 16, 49-51 base
  // offset, 62-63 swizzle.
  constexpr std::uint64_t kKnownBits = 0x3FFFull | 0x3FFFull << 16 | 0x3FFFull << 32 | 3ull << 62;
  if ((descriptor & ~kKnownBits) != 0 || descriptor >> 62 != 1)
    block_.fault(FaultKind::bad_descriptor, &thread, site,
                 "only descriptors with the 128-byte swizzle and no base offset can be decoded");
  const Panel panel{static_cast<std::uint32_t>(descriptor & 0x3FFFu) << 4,
                    static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFFu) << 4,
                    static_cast<std::uint32_t>(descriptor >> 16 & 0x3FFFu) << 4};
  const auto is_atoms = [](std::uint32_t stride) { return stride != 0 && stride % 1024 == 0; };
  const bool is_aligned = lanes[0]->numbers == WgmmaNumbers::bf16_columns
                              ? (panel.start & 0x3FFu) == 0 && n % 64 == 0 && is_atoms(panel.atom_stride) &&
                                    (n == 64 || is_atoms(panel.panel_stride))
                              : (panel.start & 0x380u) == 0 && (n <= 8 || is_atoms(panel.atom_stride));
  if (!is_aligned)
    block_.fault(FaultKind::misaligned, &thread, site,
                 format("swizzled panels start and step at multiples of 1,024 bytes; this one starts at {} "
                        "and steps by {}",
                        with_commas(panel.start), with_commas(panel.atom_stride)));
  return panel;
}

void Warpgroups::read_chunk(std::uint32_t offset, const Readers& readers, SiteTable::Id site,
                            unsigned char* bytes) {
  if (!block_.shared().contains(offset, 16))
    block_.fault(FaultKind::out_of_bounds, readers.thread[0], site,
                 format("wgmma reads shared byte {}; the block has {} bytes", with_commas(offset),
                        with_commas(block_.shared().bytes())));
  SharedConflict conflict;
  for (int i = 0; i < readers.count; ++i)
    if (!block_.shared().read_async(block_.view(*readers.thread[i]), offset, readers.epoch, site, conflict))
      block_.fault(conflict, readers.thread[i], site, "wgmma");
  std::memcpy(bytes, block_.shared().data() + offset, 16);
}

void Warpgroups::read_columns(const Panel& panel, int first_column, const Readers& readers,
                              SiteTable::Id site, unsigned char (&bytes)[8][32]) {
  for (int column = 0; column < 8; ++column)
    for (int chunk = 0; chunk < 2; ++chunk)
      read_chunk(panel.chunk_offset(first_column + column, chunk), readers, site, bytes[column] + 16 * chunk);
}

// The same of an N-major operand.
void Warpgroups::read_rows(const Panel& panel, int first_column, const Readers& readers, SiteTable::Id site,
                           unsigned char (&bytes)[8][32]) {
  for (int k = 0; k < 16; ++k) {
    unsigned char row[16];
    read_chunk(panel.row_offset(k, first_column), readers, site, row);
    for (int column = 0; column < 8; ++column) std::memcpy(bytes[column] + 2 * k, row + 2 * column, 2);
  }
}

void Warpgroups::issue(Warp& warp, const WgmmaLane* const (&lanes)[32], SiteTable::Id site) {
  const Panel panel = check_issue(warp, lanes, site);
  // Lanes that know the same need not be asked twice.
  Readers readers;
  readers.epoch = make_epoch(block_.warpgroup_party(warp.index), warp.wgmma_committed + 1);
  for (unsigned lane = 0; lane < 32; ++lane)
    if (lane == 0 || !(warp.threads[lane].known == readers.thread[readers.count - 1]->known))
      readers.thread[readers.count++] = &warp.threads[lane];

  IssuedWgmma& issued = warp.issued.emplace_back();
  issued.group = warp.wgmma_committed;
  issued.site = site;
  for (unsigned lane = 0; lane < 32; ++lane) {
    issued.a[lane] = lanes[lane]->a;
    std::memcpy(issued.a_values[lane], lanes[lane]->a, sizeof issued.a_values[lane]);
  }
  Accumulator& open = accumulator(warp, lanes, site);
  open.last_group = warp.wgmma_committed;
  open.site = site;
  const auto multiply_tiles = [&](auto rows, const auto& columns_of) {
    gather_rows(issued.a, rows);
    for (int tile = 0; tile < open.floats / 4; ++tile) {
      unsigned char bytes[8][32];
      if (lanes[0]->numbers == WgmmaNumbers::bf16_columns)
        read_rows(panel, 8 * tile, readers, site, bytes);
      else
        read_columns(panel, 8 * tile, readers, site, bytes);
      multiply_tile(rows, columns_of(bytes), lanes[0]->adds, open, tile);
    }
  };
  if (lanes[0]->numbers == WgmmaNumbers::e4m3)
    multiply_tiles(Fp8Rows{}, [](const auto& bytes) { return std::bit_cast<Fp8Columns>(bytes); });
  else
    multiply_tiles(Bf16Rows{}, bf16_columns);
  ++block_.stats().wgmma;
}

}  // namespace fourfold::sim
