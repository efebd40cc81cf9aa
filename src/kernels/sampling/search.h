// The cut of a row when ranking its best few thousand tokens does not settle it: a top-k beyond them, a flat
// nucleus, or thousands of equal logits. One block walks the whole row, two bits of the cut at a time.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "base/token_weights.h"
#include "kernels/sampling/block_tools.h"
#include "kernels/sampling/keys.h"

namespace fourfold::sampling {

// A row as its choosing block sees it.
struct RowView {
  const float* logits;
  int tokens;
  Scale scale;
};

// The largest key with which the sum of all items at or above it reaches `need`.
struct Threshold {
  std::uint32_t key;
  std::uint64_t above;  // the sum of the items above it
};

// What one round of the search adds up: the items at or above each of three cuts. Counts of items share a
// word; there are fewer than 2^21.
template <bool Counting>
struct ThreeSums {
  static constexpr int words = Counting ? 1 : 3;
  std::uint64_t word[words] = {};

  FOURFOLD_DEVICE void add(std::uint64_t digit, std::uint64_t size) {
    if constexpr (Counting) {
      word[0] += 1u | (digit >= 2 ? std::uint64_t{1} << 21 : 0) | (digit >= 3 ? std::uint64_t{1} << 42 : 0);
    } else {
      word[0] += size;
      word[1] += digit >= 2 ? size : 0;
      word[2] += digit >= 3 ? size : 0;
    }
  }
  FOURFOLD_DEVICE std::uint64_t at(int cut) const {
    if constexpr (Counting)
      return word[0] >> (21 * cut) & 0x1FFFFFu;
    else
      return word[cut];
  }
};
static_assert(kTokensMost < 1 << 21);

// measure(visit) calls visit(key, value) for the thread's own items, where value() is asked for only when it
// counts; when counting, each is one. The items together reach `need`.
template <bool Counting, class Cta, class Measure>
FOURFOLD_DEVICE Threshold find_threshold(Cta cta, BlockScratch& scratch, std::uint64_t need,
                                         const Measure& measure) {
  std::uint64_t low = 0, high = std::uint64_t{1} << 32, above = 0;
#pragma unroll 1
  for (int shift = 30; shift >= 0; shift -= 2) {
    // Three cuts between low and high; only items between them have to be looked at.
    const std::uint64_t step = std::uint64_t{1} << shift;
    ThreeSums<Counting> sums;
    measure([&](std::uint32_t key, const auto& value) {
      if (key >= low + step && key < high) sums.add((key - low) >> shift, value());
    });
    sum_all(cta, scratch, sums.word);
    int digit = 0;
#pragma unroll
    for (int j = 0; j < 3; ++j) digit = above + sums.at(j) >= need ? j + 1 : digit;
    above += digit == 0 ? sums.at(0) : digit == 1 ? sums.at(1) : digit == 2 ? sums.at(2) : 0;
    high = digit < 3 ? low + step * static_cast<std::uint64_t>(digit + 1) : high;
    low += step * static_cast<std::uint64_t>(digit);
  }
  return {static_cast<std::uint32_t>(low), above};
}

// The thread's tokens of the row in chunks of 2,048, four at a time: visit(first token, four logits).
template <class Cta, class Visit>
FOURFOLD_DEVICE void walk_row(Cta cta, const RowView& row, const Visit& visit) {
#pragma unroll 2
  for (int first = cta.thread() * 4; first < row.tokens; first += 4 * kChooseThreads)
    visit(first, load_four(cta, row.logits, first, row.tokens));
}

// Which tokens are left: those above the key, and of those at the key the first `ties`.
struct Cut {
  std::uint32_t key;
  std::uint64_t ties;
};

template <class Cta>
FOURFOLD_DEVICE Cut cut_by_count(Cta cta, BlockScratch& scratch, const RowView& row, std::uint64_t count) {
  const Threshold at = find_threshold<true>(cta, scratch, count, [&](const auto& visit) {
    walk_row(cta, row, [&](int, const Four& four) {
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(order_key<Cta>(four.value[i]), [] { return std::uint64_t{1}; });
    });
  });
  return {at.key, count - at.above};
}

// The sum of what a cut leaves, of weights at or above min_p.
template <class Cta>
FOURFOLD_DEVICE std::uint64_t sum_of_cut(Cta cta, BlockScratch& scratch, const RowView& row, const Cut& cut,
                                         double min_p) {
  std::uint64_t sum[1] = {0};
  walk_row(cta, row, [&](int, const Four& four) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (order_key<Cta>(four.value[i]) > cut.key) sum[0] += weight_of<Cta>(four.value[i], row.scale, min_p);
  });
  sum_all(cta, scratch, sum);
  if (cut.ties == 0) return sum[0];
  return sum[0] + cut.ties * weight_of<Cta>(value_of_key(cut.key), row.scale, min_p);
}

// The nucleus: the best tokens that first reach `need`. Inside of what top-k left it is the same, since
// `need` is at most the sum of that.
template <class Cta>
FOURFOLD_DEVICE Cut cut_by_weight(Cta cta, BlockScratch& scratch, const RowView& row, std::uint64_t need) {
  const Threshold at = find_threshold<false>(cta, scratch, need, [&](const auto& visit) {
    walk_row(cta, row, [&](int, const Four& four) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        visit(order_key<Cta>(four.value[i]), [&] { return weight_of<Cta>(four.value[i], row.scale, 0.0); });
    });
  });
  const std::uint64_t each = weight_of<Cta>(value_of_key(at.key), row.scale, 0.0);
  return {at.key, (need - at.above + each - 1) / each};
}

// The token at `target` of the way through what a cut leaves, in the order of ids. `result` is shared.
template <class Cta>
FOURFOLD_DEVICE void draw_from_cut(Cta cta, BlockScratch& scratch, const RowView& row, const Cut& cut,
                                   double min_p, std::uint64_t target, std::int32_t* result) {
  std::uint64_t sum = 0, ties = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < row.tokens; chunk += 4 * kChooseThreads) {
    const int first = chunk + cta.thread() * 4;
    const Four four = load_four(cta, row.logits, first, row.tokens);
    std::uint32_t key[4];
    std::uint64_t equal = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      key[i] = order_key<Cta>(four.value[i]);
      equal += first + i < row.tokens && key[i] == cut.key ? 1 : 0;
    }
    const Running tied = running_sum(cta, scratch, equal);
    std::uint64_t weight[4], tie = ties + tied.before, mine = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool at = first + i < row.tokens && key[i] == cut.key;
      const bool kept = key[i] > cut.key || (at && tie < cut.ties);
      tie += at ? 1 : 0;
      weight[i] = kept ? weight_of<Cta>(four.value[i], row.scale, min_p) : 0;
      mine += weight[i];
    }
    const Running run = running_sum(cta, scratch, mine);
    std::uint64_t reached = sum + run.before;
    if (reached <= target && target < reached + mine) {
      int token = first;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        token = reached <= target ? first + i : token;
        reached += weight[i];
      }
      cta.store_shared(result, token);
    }
    sum += run.total;
    ties += tied.total;
    if (sum > target) return;  // the same in every thread
  }
}

}  // namespace fourfold::sampling
