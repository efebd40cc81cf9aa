// How decode cuts a context: splits begin at fixed absolute positions, whatever the batch, the length or the
// grid, because the order of the softmax's sums is part of the answer. Short splits first: at 1,000 tokens
// one user's latency needs many small blocks. Long splits later: a split leaves one f32 row a head behind,
// and that must stay a few percent of the keys and values it read (35B: 5.9 % at 32,768, 3.5 % at 262,144).
#pragma once

#include <cstdint>

#include "kernels/step/step_tables.h"

namespace fourfold::attention {

struct SplitTier {
  int first_position;
  int first_split;
  int log2_positions;  // of one split
};

inline constexpr SplitTier kSplitTiers[] = {{0, 0, 6}, {1'024, 16, 7}, {4'096, 40, 8}, {16'384, 88, 9}};
inline constexpr int kLargestSplitPages = 8;

constexpr int split_of(int position) {
  int split = position >> 6;
  if (position >= 1'024) split = 16 + ((position - 1'024) >> 7);
  if (position >= 4'096) split = 40 + ((position - 4'096) >> 8);
  if (position >= 16'384) split = 88 + ((position - 16'384) >> 9);
  return split;
}
constexpr int split_begin(int split) {
  int begin = split << 6;
  if (split >= 16) begin = 1'024 + ((split - 16) << 7);
  if (split >= 40) begin = 4'096 + ((split - 40) << 8);
  if (split >= 88) begin = 16'384 + ((split - 88) << 9);
  return begin;
}
// Splits of a sequence whose last row stands at `last`.
constexpr int split_count(int last) { return split_of(last) + 1; }

// The first position that a row sees: of a window its own and the window - 1 before it; window 0: all.
constexpr int first_seen(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}
// The first split a row has anything of. It follows from the row's own position, so which splits are left out
// does, too.
constexpr int first_split(int position, int window) { return split_of(first_seen(position, window)); }
// Splits that rows at `first` to `last` of a sequence see something of.
constexpr int split_count(int first, int last, int window) {
  return split_count(last) - first_split(first, window);
}

namespace detail {
constexpr bool tiers_agree() {
  for (const SplitTier& tier : kSplitTiers) {
    if (split_of(tier.first_position) != tier.first_split) return false;
    if (split_begin(tier.first_split) != tier.first_position) return false;
    if (split_begin(tier.first_split + 1) != tier.first_position + (1 << tier.log2_positions)) return false;
    if (tier.first_split > 0 && split_of(tier.first_position - 1) != tier.first_split - 1) return false;
    if ((1 << tier.log2_positions) > kLargestSplitPages * step::kPageTokens) return false;
  }
  return true;
}
}  // namespace detail
static_assert(detail::tiers_agree(), "splits are whole pages and follow each other without a gap");

}  // namespace fourfold::attention
