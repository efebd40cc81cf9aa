// Two matrices of different formats with the same input for more tokens than eight: the first blocks of
// dense_many multiply the first, the others the second, and one kernel adds up the segments of both. What
// dense_pair.h is for fewer tokens. A checkpoint whose router or gates are bf16 beside FP8 or FP4 would pay
// two launches more for a matrix of a few strips.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/dense/dense_many.h"
#include "kernels/dense/dense_pair.h"
#include "kernels/dense/dense_sum.h"
#include "kernels/dense/many_params.h"

namespace fourfold::dense {

// The same tokens for both; memory for sums of its own for each. Neither has a bias.
struct ManyPairParams {
  ManyParams first, second;
  std::int32_t first_blocks;  // of the kernel that multiplies; its grid has more
};

template <class First, class Second, class Cta>
FOURFOLD_DEVICE void dense_many_pair(Cta cta, const ManyPairParams& params) {
  if (cta.block() < params.first_blocks)
    dense_many<First>(BlockRange<Cta, false, ManyPairParams>(cta, params), params.first);
  else
    dense_many<Second>(BlockRange<Cta, true, ManyPairParams>(cta, params), params.second);
}

constexpr int pair_items(const ManyPairParams& params) {
  return sum_items(params.first.dense.strips, params.first.dense.token_count) +
         sum_items(params.second.dense.strips, params.second.dense.token_count);
}

// The items of the first matrix, then those of the second.
template <class FirstFormat, class SecondFormat, class Cta>
FOURFOLD_DEVICE void dense_sum_pair(Cta cta, const ManyPairParams& params) {
  const DenseParams &first = params.first.dense, &second = params.second.dense;
  const int firsts = sum_items(first.strips, first.token_count), items = pair_items(params);
  const int segments = segments_of(first.records);
  cta.wait_predecessors();
  cta.release_successors();
#pragma unroll 1
  for (int item = cta.block() * kSumWarps + cta.warp(); item < items; item += cta.blocks() * kSumWarps) {
    const bool is_first = item < firsts;
    const int at = is_first ? item : item - firsts;
    const int tiles = kStripFragments * (is_first ? first.strips : second.strips);
    const int group = at / tiles, tile = at - group * tiles;
    if (is_first)
      finish_fragment<FirstFormat, false>(cta, params.first, segments, group, tile / kStripFragments,
                                          tile % kStripFragments);
    else
      finish_fragment<SecondFormat, false>(cta, params.second, segments, group, tile / kStripFragments,
                                           tile % kStripFragments);
  }
}

}  // namespace fourfold::dense
