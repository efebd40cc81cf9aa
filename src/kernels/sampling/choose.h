// The last pass: a block draws one choice's token. Whatever the way, the token is the first, in the order of
// ids, whose running sum of weights is larger than the target.
//
//   temperature 0         the best of the parts
//   no top-k, no top-p    from the sums of groups that `weigh` left, then inside one group
//   else                  the best tokens ranked in shared memory (ranked.h): parts first, then groups; and
//                         where those are too few or too many, a search of the row (search.h)
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/sampling/block_tools.h"
#include "kernels/sampling/peaks.h"
#include "kernels/sampling/ranked.h"
#include "kernels/sampling/search.h"

namespace fourfold::sampling {

// What a choice asks, in registers.
struct Wish {
  std::uint64_t seed;
  std::int64_t position;
  double temperature, top_p, min_p;
  int top_k;
};

template <class Cta>
FOURFOLD_DEVICE Wish load_wish(Cta cta, const ChoiceParams& params, int choice, int step_row) {
  const SampleRow* row = params.sampling + choice;
  return {cta.load(&row->seed),        std::int64_t{cta.load(&params.rows[step_row].position)} + 1,
          cta.load(&row->temperature), cta.load(&row->top_p),
          cta.load(&row->min_p),       cta.load(&row->top_k)};
}

// The sums of the thread's groups 8 t .. 8 t + 7.
template <class Cta>
FOURFOLD_DEVICE std::uint64_t load_group_weights(Cta cta, const ChoiceParams& params, int choice,
                                                 std::uint64_t (&weights)[kGroupsPerThread]) {
  const int groups = groups_of(params.tokens);
  const std::uint64_t* from = params.group_weights + static_cast<std::int64_t>(choice) * groups;
  std::uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kGroupsPerThread; ++i) {
    const int group = cta.thread() * kGroupsPerThread + i;
    weights[i] = group < groups ? cta.load(from + group) : 0;
    sum += weights[i];
  }
  return sum;
}

template <class Cta>
FOURFOLD_DEVICE void draw_from_groups(Cta cta, ChooseStorage& storage, const ChoiceParams& params, int choice,
                                      const RowView& row, const Wish& wish) {
  std::uint64_t weights[kGroupsPerThread];
  const std::uint64_t mine = load_group_weights(cta, params, choice, weights);
  const Running run = running_sum(cta, storage.scratch, mine);
  const std::uint64_t target = target_of(wish.seed, wish.position, run.total);
  if (run.before <= target && target < run.before + mine) {
    std::uint64_t reached = run.before, start = 0;
    int group = 0;
#pragma unroll
    for (int i = 0; i < kGroupsPerThread; ++i) {
      if (reached <= target) {
        group = cta.thread() * kGroupsPerThread + i;
        start = reached;
      }
      reached += weights[i];
    }
    cta.store_shared(storage.groups, group);
    cta.store_shared(storage.entries, target - start);
  }
  cta.sync_block();  // the group is known
  if (cta.thread() >= 32) return;
  const std::uint64_t inside = cta.load_shared(storage.entries);
  const int token = cta.load_shared(storage.groups) * kGroupTokens + 2 * cta.lane();
  std::uint64_t weight[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    weight[i] =
        token + i < row.tokens ? weight_of<Cta>(cta.load(row.logits + token + i), row.scale, wish.min_p) : 0;
  const std::uint64_t behind = warp_running_sum(cta, weight[0] + weight[1]);
  const std::uint64_t before = behind - weight[0] - weight[1];
  if (before <= inside && inside < behind)
    cta.store_shared(&storage.token, before + weight[0] > inside ? token : token + 1);
}

// How many of the `count` ranked tokens are in the nucleus: those that first reach `need`. 0: they do not.
// Leaves their weights in storage.weights. need 0: the nucleus is taken of the sum of the `count` themselves.
template <class Cta>
FOURFOLD_DEVICE int count_nucleus(Cta cta, ChooseStorage& storage, const RowView& row, int count,
                                  std::uint64_t need, double top_p) {
  const int each = (count + kChooseThreads - 1) / kChooseThreads;
  const int first = cta.thread() * each, end = first + each < count ? first + each : count;
  std::uint64_t mine = 0;
  for (int i = first; i < end; ++i) {
    const float score = value_of_key(key_of(cta.load_shared(storage.entries + i)));
    const std::uint64_t weight = weight_of<Cta>(score, row.scale, 0.0);
    cta.store_shared(storage.weights + i, weight);
    mine += weight;
  }
  const Running run = running_sum(cta, storage.scratch, mine);
  if (need == 0) need = nucleus_of<Cta>(run.total, top_p);
  if (run.total < need) return 0;
  if (run.before < need && need <= run.before + mine) {
    std::uint64_t reached = run.before;
    int last = first;
    for (int i = first; i < end && reached < need; ++i) {
      reached += cta.load_shared(storage.weights + i);
      last = i;
    }
    cta.store_shared(&storage.kept, last + 1);
  }
  cta.sync_block();  // the count is known
  return cta.load_shared(&storage.kept);
}

// Draws among the first `count` ranked tokens.
template <class Cta>
FOURFOLD_DEVICE void draw_from_ranked(Cta cta, ChooseStorage& storage, const RowView& row, int count,
                                      const Wish& wish) {
  for (int i = cta.thread(); i < count; i += kChooseThreads) {
    const std::uint64_t entry = cta.load_shared(storage.entries + i);
    cta.store_shared(storage.weights + i, weight_of<Cta>(value_of_key(key_of(entry)), row.scale, wish.min_p));
    // The complement of the id first: the largest is the lowest id.
    cta.store_shared(storage.entries + i, entry << 32 | static_cast<std::uint32_t>(i));
  }
  sort_entries(cta, storage.entries, count);
  const int each = (count + kChooseThreads - 1) / kChooseThreads;
  const int first = cta.thread() * each, end = first + each < count ? first + each : count;
  const auto weight_at = [&](int i) {
    const auto rank = static_cast<int>(cta.load_shared(storage.entries + i) & 0xFFFFFFFFu);
    return cta.load_shared(storage.weights + rank);
  };
  std::uint64_t mine = 0;
  for (int i = first; i < end; ++i) mine += weight_at(i);
  const Running run = running_sum(cta, storage.scratch, mine);
  const std::uint64_t target = target_of(wish.seed, wish.position, run.total);
  if (target < run.before || target >= run.before + mine) return;
  std::uint64_t reached = run.before;
  int last = first;
  for (int i = first; i < end && reached <= target; ++i) {
    reached += weight_at(i);
    last = i;
  }
  cta.store_shared(&storage.token, token_of(cta.load_shared(storage.entries + last) >> 32));
}

// True when ranking settled the choice.
template <class Cta>
FOURFOLD_DEVICE bool choose_ranked(Cta cta, ChooseStorage& storage, const ChoiceParams& params, int choice,
                                   const RowView& row, const Wish& wish, std::uint64_t need) {
  const bool limited = wish.top_k > 0;
  std::uint32_t keys[kGroupsPerThread];
  load_group_keys(cta, params, choice, keys);
#pragma unroll 1
  for (int level = 0; level < 2; ++level) {
    const int most = level == 0 ? kRankedParts : kRankedGroups;
    const int there = level == 0 ? parts_of(params.tokens) : groups_of(params.tokens);
    if (limited && (wish.top_k > most || wish.top_k > there)) continue;
    const int rank = limited ? wish.top_k : most < there ? most : there;
    const std::uint32_t threshold = level == 0 ? part_threshold(cta, storage, params, choice, rank)
                                               : group_threshold(cta, storage, keys, rank);
    const int found = rank_tokens(cta, storage, row, keys, threshold);
    if (found > kRankedMost) continue;
    int kept = limited && wish.top_k < found ? wish.top_k : found;
    if (wish.top_p < 1.0) {
      kept = count_nucleus(cta, storage, row, kept, need, wish.top_p);
      if (kept == 0) continue;
    }
    draw_from_ranked(cta, storage, row, kept, wish);
    return true;
  }
  return false;
}

template <class Cta>
FOURFOLD_DEVICE void choose_by_search(Cta cta, ChooseStorage& storage, const RowView& row, const Wish& wish,
                                      std::uint64_t need) {
  Cut cut{0, 0};
  if (wish.top_k > 0 && wish.top_k < row.tokens)
    cut = cut_by_count(cta, storage.scratch, row, static_cast<std::uint64_t>(wish.top_k));
  if (wish.top_p < 1.0) {
    if (need == 0) need = nucleus_of<Cta>(sum_of_cut(cta, storage.scratch, row, cut, 0.0), wish.top_p);
    cut = cut_by_weight(cta, storage.scratch, row, need);
  }
  const std::uint64_t total = sum_of_cut(cta, storage.scratch, row, cut, wish.min_p);
  draw_from_cut(cta, storage.scratch, row, cut, wish.min_p, target_of(wish.seed, wish.position, total),
                &storage.token);
}

template <class Cta>
FOURFOLD_DEVICE void choose(Cta cta, const ChoiceParams& params) {
  auto& storage = cta.template shared<ChooseStorage>();
  cta.wait_predecessors();
  cta.release_successors();
  const int choice = cta.block();
  const int step_row = cta.load(params.choice_rows + choice);
  if (step_row < 0) return;
  const PartBest best = best_of_parts(cta, params, choice);
  const Wish wish = load_wish(cta, params, choice, step_row);
  if (wish.temperature == 0.0 || best.not_finite != 0) {
    if (cta.thread() == 0) write_choice(cta, params, choice, token_of(best.best), best.not_finite);
    return;
  }
  const RowView row{params.logits + choice * params.stride, params.tokens,
                    scale_of<Cta>(value_of_key(key_of(best.best)), wish.temperature)};
  if (wish.top_k == 0 && wish.top_p == 1.0) {
    draw_from_groups(cta, storage, params, choice, row, wish);
  } else {
    std::uint64_t need = 0;
    if (wish.top_k == 0) {
      std::uint64_t weights[kGroupsPerThread];
      std::uint64_t total[1] = {load_group_weights(cta, params, choice, weights)};
      sum_all(cta, storage.scratch, total);
      need = nucleus_of<Cta>(total[0], wish.top_p);
    }
    if (!choose_ranked(cta, storage, params, choice, row, wish, need))
      choose_by_search(cta, storage, row, wish, need);
  }
  cta.sync_block();  // the token is chosen
  if (cta.thread() == 0) write_choice(cta, params, choice, cta.load_shared(&storage.token), 0);
}

}  // namespace fourfold::sampling
