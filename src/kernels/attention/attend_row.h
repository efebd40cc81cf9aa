// A row of decode attention: one type, its registers and its shared memory. Sixteen query vectors (heads of
// one KV head, for each row of the sequence) are one m16 operand.
#pragma once

#include <cstdint>
#include <string>

#include "base/macros.h"
#include "kernels/attention/attend.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/page_layout.h"
#include "kernels/launch/row.h"
#include "plan/budget.h"

namespace fourfold::attention {

template <class Layout, int Tile, int Warps, int Stages>
struct AttendStorage {
  alignas(1024) unsigned char query[Tile * Layout::head_dim * 2];  // panels of 64 columns, swizzled rows
  alignas(1024) unsigned char slot[Stages][Layout::piece_bytes];
  alignas(128) unsigned char weights[Tile * 2 * kPageTokens];  // bf16, rows of 128 bytes, swizzled
  float largest[Warps][Tile];                                  // of a warp's positions
  float sum[8][Tile];                                          // of eight positions' weights
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// Windowed: with code for a window (attention_params.h).
template <class ArchT, class KvT, int HeadDim, int TileN, bool Windowed = false>
struct AttendRow {
  using Arch = ArchT;
  using Layout = PageLayout<KvT, HeadDim>;
  using Params = AttendParams;
  static constexpr int head_dim = HeadDim;
  static constexpr bool is_windowed = Windowed;
  static constexpr int tile = TileN;        // query vectors of a block
  static constexpr int tiles = TileN / 16;  // m16 operands
  static constexpr int warps =
      TileN <= 32 ? 4 : 8;  // 64 vectors' sums would not fit in four warps' registers
  static constexpr int key_tiles = kPageTokens / 8 / warps;  // n8 tiles of positions that a warp scores
  static constexpr int value_tiles = HeadDim / 8 / warps;    // n8 tiles of dimensions that a warp sums
  static constexpr int threads = 32 * warps;
  static constexpr int math_warps = warps;
  static constexpr int copy_pieces = 1;
  static constexpr int blocks_per_sm = 1;
  template <int Stages>
  using StorageOf = AttendStorage<Layout, TileN, warps, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, blocks_per_sm), 12>();
  using Storage = StorageOf<stages>;
  // Pieces of a page that wait while the block is in its K or V: one page of both, or the copies stall.
  static_assert(stages >= 6 && TileN % 16 == 0);

  static constexpr const char* products = "mma";
  static std::string name() { return attend_row(HeadDim, KvT::name, TileN, Windowed); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<AttendRow>("attend", "decode", KvT::name);
    facts.m = TileN;
    facts.n = kPageTokens;
    facts.k = HeadDim;
    facts.stages = stages;
    facts.is_windowed = Windowed;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend<AttendRow>(cta, params);
  }
};

}  // namespace fourfold::attention
