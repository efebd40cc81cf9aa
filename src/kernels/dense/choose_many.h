// How a dense matrix of more than eight tokens runs: dense_many, then dense_sum where K has several segments;
// or dense_tall alone where there are rows enough for every warp. A total function; all forms give the same
// bits, those of dense_few.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/dense/choose.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/rows.h"

namespace fourfold::dense {

struct ManyChoice {
  std::string multiply;  // a row of dense_many or dense_tall
  int multiply_blocks = 0;
  std::string sum;     // a dense_sum row, launched after it with the same arguments
  int sum_blocks = 0;  // 0: the rows are finished, nothing follows
  // In its place where the result goes to the residual stream and is normed next (dense_sum_norm.h), with a
  // block a token; empty where nothing follows or a row is too long for it.
  std::string sum_norm;
  std::size_t workspace_bytes = 0;  // of ManyParams::partial, 16-byte aligned; 0: none
};

// Blocks of a row: every block one segment and one part of the tokens, the units dealt out to what is left.
template <class Row>
ManyChoice many_choice(int rows, int columns, int tokens, int sm_count) {
  const int strips = rows / record::kRows, segments = segments_of(columns / record::kColumns);
  const int parts = (groups_of(tokens) + Row::groups - 1) / Row::groups;
  const int shares = std::clamp(sm_count / (parts * segments), 1, Row::units_of(strips));
  ManyChoice choice{Row::name(), shares * segments * parts, {}, 0, {}, partial_bytes(rows, columns, tokens)};
  if (segments > 1) {
    using Sum = SumRow<typename Row::Arch, typename Row::Format>;
    choice.sum = Sum::name();
    choice.sum_blocks =
        std::min((sum_items(strips, tokens) + kSumWarps - 1) / kSumWarps, Sum::blocks_per_sm * sm_count);
    if (rows <= kNormColumnsMax)
      choice.sum_norm = SumNormRow<typename Row::Arch, typename Row::Format>::name();
  }
  return choice;
}

template <class Row>
ManyChoice tall_choice(int tokens, int sm_count) {
  const int parts = (groups_of(tokens) + Row::groups - 1) / Row::groups;
  return {Row::name(), std::max(sm_count / parts, 1) * parts, {}, 0, {}, 0};
}

// The narrowest form that takes the tokens in one part, or the even parts of more than 64.
template <class Format, int NarrowTiles, int NarrowRecords>
ManyChoice many_choice_of(int rows, int columns, int tokens, int sm_count) {
  using Arch = plan::Sm120;
  constexpr int kWidest = 64;
  const int parts = (tokens + kWidest - 1) / kWidest;
  const int each = kTokens * ((groups_of(tokens) + parts - 1) / parts);
  // Two strips and more for every warp: what K in one piece costs in tokens read again is less than the sums
  // of its segments would be. One segment has none.
  if (columns > moe::kSegmentColumns &&
      rows / record::kRows >= 2 * TallRow<Arch, Format, 16>::warps * sm_count) {
    if (each <= 16) return tall_choice<TallRow<Arch, Format, 16>>(tokens, sm_count);
    if (each <= 32) return tall_choice<TallRow<Arch, Format, 32>>(tokens, sm_count);
    return tall_choice<TallRow<Arch, Format, kWidest>>(tokens, sm_count);
  }
  if (each <= 16)
    return many_choice<ManyRow<Arch, Format, 16, NarrowTiles, NarrowRecords>>(rows, columns, tokens,
                                                                              sm_count);
  if (each <= 32)
    return many_choice<ManyRow<Arch, Format, 32, NarrowTiles, NarrowRecords>>(rows, columns, tokens,
                                                                              sm_count);
  if (each <= 48) return many_choice<ManyRow<Arch, Format, 48, 2, 1>>(rows, columns, tokens, sm_count);
  return many_choice<ManyRow<Arch, Format, kWidest, 2, 1>>(rows, columns, tokens, sm_count);
}

// rows and columns: of the packed matrix, multiples of 32 and 64.
inline ManyChoice choose_many(int rows, int columns, WeightFormat format, int tokens, int sm_count) {
  check(rows > 0 && rows % record::kRows == 0 && columns > 0 && columns % record::kColumns == 0 &&
            tokens >= 1 && tokens <= kManyTokens && sm_count > 0,
        "a packed matrix times 1 to 128 tokens", rows, columns, tokens);
  switch (format) {
    case WeightFormat::bf16: return many_choice_of<record::Bf16Format, 1, 1>(rows, columns, tokens, sm_count);
    case WeightFormat::fp8: return many_choice_of<record::Fp8Format, 2, 1>(rows, columns, tokens, sm_count);
    case WeightFormat::nvfp4: return many_choice_of<record::Nvfp4, 2, 2>(rows, columns, tokens, sm_count);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  refuse_format(format);
}

// The row whose matrix dense_many_table takes along with the tables of routing; empty: none of this format.
inline std::string many_of_table(WeightFormat format) {
  using Arch = plan::Sm120;
  switch (format) {
    case WeightFormat::bf16: return ManyRow<Arch, record::Bf16Format, 16, 1, 1>::name();
    case WeightFormat::fp8: return ManyRow<Arch, record::Fp8Format, 16, 2, 1>::name();
    case WeightFormat::nvfp4: return ManyRow<Arch, record::Nvfp4, 16, 2, 2>::name();
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  return {};
}

// A bf16 matrix and one of another format with the same input, in one launch and one sum.
struct ManyPairChoice {
  std::string row;  // empty: they go one by one
  int first_blocks = 0;
  int blocks = 0;
  std::string sum;
  int sum_blocks = 0;             // 0: the rows are finished, nothing follows
  std::size_t first_partial = 0;  // bytes of the first matrix's sums; the second's lie behind them
  std::size_t workspace_bytes = 0;
};

// How many of `shares` the first of two matrices gets: what leaves the block that has most the fewest bytes.
constexpr int first_shares(int shares, int first_units, int first_unit_bytes, int second_units,
                           int second_unit_bytes) {
  const auto most = [&](int first) {
    const int second = shares - first;
    const long long a = (first_units + first - 1LL) / first * first_unit_bytes;
    const long long b = (second_units + second - 1LL) / second * second_unit_bytes;
    return a > b ? a : b;
  };
  int best = 1;
  for (int first = 2; first < shares && first <= first_units; ++first)
    if (most(first) < most(best)) best = first;
  return best;
}

template <class Pair>
ManyPairChoice many_pair_choice(int first_rows, int second_rows, int columns, int tokens, int sm_count) {
  using First = typename Pair::First;
  using Second = typename Pair::Second;
  const int first_strips = first_rows / record::kRows, second_strips = second_rows / record::kRows;
  const int segments = segments_of(columns / record::kColumns);
  const int cells = segments * ((groups_of(tokens) + Pair::groups - 1) / Pair::groups);
  const int first_units = First::units_of(first_strips), second_units = Second::units_of(second_strips);
  const int shares = std::clamp(sm_count / cells, 2, first_units + second_units);
  const int first = first_shares(shares, first_units, First::copy_bytes, second_units, Second::copy_bytes);
  ManyPairChoice choice{Pair::name(),
                        cells * first,
                        cells * (first + std::min(second_units, shares - first)),
                        {},
                        0,
                        partial_bytes(first_rows, columns, tokens),
                        0};
  choice.workspace_bytes = choice.first_partial + partial_bytes(second_rows, columns, tokens);
  if (segments > 1) {
    using Sum = SumPairRow<typename Pair::Arch, typename First::Format, typename Second::Format>;
    const int items = sum_items(first_strips, tokens) + sum_items(second_strips, tokens);
    choice.sum = Sum::name();
    choice.sum_blocks =
        std::min((items + kSumWarps - 1) / kSumWarps,
                 SumRow<typename Pair::Arch, typename Second::Format>::blocks_per_sm * sm_count);
  }
  return choice;
}

template <class Format, int NarrowRecords>
ManyPairChoice many_pair_of(int first_rows, int second_rows, int columns, int tokens, int sm_count) {
  using Arch = plan::Sm120;
  const int parts = (tokens + 63) / 64;
  const int each = kTokens * ((groups_of(tokens) + parts - 1) / parts);
  const auto with = [&]<class Pair>() {
    return many_pair_choice<Pair>(first_rows, second_rows, columns, tokens, sm_count);
  };
  if (each <= 16) return with.template operator()<ManyPairOf<Arch, Format, 16, NarrowRecords>>();
  if (each <= 32) return with.template operator()<ManyPairOf<Arch, Format, 32, NarrowRecords>>();
  if (each <= 48) return with.template operator()<ManyPairOf<Arch, Format, 48, 1>>();
  return with.template operator()<ManyPairOf<Arch, Format, 64, 1>>();
}

inline ManyPairChoice choose_many_pair(int first_rows, int second_rows, int columns, WeightFormat second,
                                       int tokens, int sm_count) {
  // A head is taken by dense_tall, alone.
  for (const auto& [rows, format] : {std::pair{first_rows, WeightFormat::bf16}, {second_rows, second}})
    if (choose_many(rows, columns, format, tokens, sm_count).multiply.starts_with("dense_tall")) return {};
  if (second == WeightFormat::fp8)
    return many_pair_of<record::Fp8Format, 1>(first_rows, second_rows, columns, tokens, sm_count);
  if (second == WeightFormat::nvfp4)
    return many_pair_of<record::Nvfp4, 2>(first_rows, second_rows, columns, tokens, sm_count);
  return {};  // bf16: one matrix
}

}  // namespace fourfold::dense
