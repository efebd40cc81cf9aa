// What dense_many left of every segment, added in order and finished: one pass at the speed of L2, a warp for
// 16 rows of eight tokens.
#pragma once

#include "base/macros.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/many_sums.h"

namespace fourfold::dense {

inline constexpr int kSumWarps = 8;

// Tiles and groups of tokens: what warps are dealt.
constexpr int sum_items(int strips, int tokens) { return kStripFragments * strips * groups_of(tokens); }

template <class Format, class Cta>
FOURFOLD_DEVICE void dense_sum(Cta cta, const ManyParams& params) {
  const int warp = cta.warp(), tiles = kStripFragments * params.dense.strips;
  const int items = sum_items(params.dense.strips, params.dense.token_count);
  const int segments = segments_of(params.dense.records);
  cta.wait_predecessors();
  cta.release_successors();
#pragma unroll 1
  for (int item = cta.block() * kSumWarps + warp; item < items; item += cta.blocks() * kSumWarps) {
    const int group = item / tiles, tile = item - group * tiles;
    finish_fragment<Format, true>(cta, params, segments, group, tile / kStripFragments,
                                  tile % kStripFragments);
  }
}

}  // namespace fourfold::dense
