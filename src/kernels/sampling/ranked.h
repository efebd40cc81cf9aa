// A row's best tokens, ranked in shared memory. At least G tokens have a key of the G-th best part's (or
// group's) best key or more, so all tokens that do are a superset of the best G, and usually not many more.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/sampling/block_tools.h"
#include "kernels/sampling/keys.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/search.h"

namespace fourfold::sampling {

// How many parts, then groups, are looked at for a nucleus; also the largest top-k that is ranked.
inline constexpr int kRankedParts = 64;
inline constexpr int kRankedGroups = 1024;

struct ChooseStorage {
  alignas(16) std::uint64_t entries[kRankedMost];
  alignas(16) std::uint64_t weights[kRankedMost];
  std::int32_t groups[kTokensMost / kGroupTokens];
  BlockScratch scratch;
  std::int32_t kept;
  std::int32_t token;
};

// The key of the rank-th best part, counted from 1.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t part_threshold(Cta cta, ChooseStorage& storage, const ChoiceParams& params,
                                             int choice, int rank) {
  const int parts = parts_of(params.tokens);
  const PartBest* from = params.parts + static_cast<std::int64_t>(choice) * parts;
  if (cta.thread() < parts)
    cta.store_shared(storage.entries + cta.thread(), cta.load(&from[cta.thread()].best));
  sort_entries(cta, storage.entries, parts);
  const std::uint32_t key = key_of(cta.load_shared(storage.entries + rank - 1));
  return key > 0 ? key : 1;
}

// The best keys of the thread's groups; group thread + 512 i. 0 where there is none.
template <class Cta>
FOURFOLD_DEVICE void load_group_keys(Cta cta, const ChoiceParams& params, int choice,
                                     std::uint32_t (&keys)[kGroupsPerThread]) {
  const int groups = groups_of(params.tokens);
  const std::uint32_t* from = params.group_keys + static_cast<std::int64_t>(choice) * groups;
#pragma unroll
  for (int i = 0; i < kGroupsPerThread; ++i) {
    const int group = i * kChooseThreads + cta.thread();
    keys[i] = group < groups ? cta.load(from + group) : 0u;
  }
}

template <class Cta>
FOURFOLD_DEVICE std::uint32_t group_threshold(Cta cta, ChooseStorage& storage,
                                              const std::uint32_t (&keys)[kGroupsPerThread], int rank) {
  const auto measure = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kGroupsPerThread; ++i) visit(keys[i], [] { return std::uint64_t{1}; });
  };
  const std::uint32_t key =
      find_threshold<true>(cta, storage.scratch, static_cast<std::uint64_t>(rank), measure).key;
  return key > 0 ? key : 1;
}

// Lists the groups whose best key is at least `threshold`; returns how many.
template <class Cta>
FOURFOLD_DEVICE int list_groups(Cta cta, ChooseStorage& storage,
                                const std::uint32_t (&keys)[kGroupsPerThread], std::uint32_t threshold) {
  std::uint64_t mine = 0;
#pragma unroll
  for (int i = 0; i < kGroupsPerThread; ++i) mine += keys[i] >= threshold ? 1 : 0;
  const Running run = running_sum(cta, storage.scratch, mine);
  int place = static_cast<int>(run.before);
#pragma unroll
  for (int i = 0; i < kGroupsPerThread; ++i)
    if (keys[i] >= threshold) cta.store_shared(storage.groups + place++, i * kChooseThreads + cta.thread());
  cta.sync_block();  // the list is there
  return static_cast<int>(run.total);
}

// One look at the tokens of the listed groups: a warp takes two groups at a time. take(lanes before this one
// with a hit counted, token, key) is called for each token at or above the threshold, in an order of its own.
template <class Cta, class Take>
FOURFOLD_DEVICE int look_at_groups(Cta cta, ChooseStorage& storage, const RowView& row, int listed,
                                   std::uint32_t threshold, const Take& take) {
  const int pairs = (listed + 1) / 2, per_warp = (pairs + kChooseWarps - 1) / kChooseWarps;
  const int first = cta.warp() * per_warp, end = first + per_warp < pairs ? first + per_warp : pairs;
  const std::uint32_t before = (1u << cta.lane()) - 1u;
  int found = 0;
#pragma unroll 2
  for (int pair = first; pair < end; ++pair) {
    const int at = 2 * pair + cta.lane() / 16;
    const int group = at < listed ? cta.load_shared(storage.groups + at) : -1;
    const int token = group * kGroupTokens + cta.lane() % 16 * 4;
    const Four four =
        group >= 0 ? load_four(cta, row.logits, token, row.tokens) : load_four(cta, row.logits, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t key = order_key<Cta>(four.value[i]);
      const std::uint32_t hits = cta.ballot(key >= threshold);
      if (key >= threshold) take(found + Cta::count_ones(hits & before), token + i, key);
      found += Cta::count_ones(hits);
    }
  }
  return found;
}

// Puts the tokens at or above the threshold into the entries, best first, when there is room for them;
// returns how many there are.
template <class Cta>
FOURFOLD_DEVICE int rank_tokens(Cta cta, ChooseStorage& storage, const RowView& row,
                                const std::uint32_t (&keys)[kGroupsPerThread], std::uint32_t threshold) {
  const int listed = list_groups(cta, storage, keys, threshold);
  const int found = look_at_groups(cta, storage, row, listed, threshold, [](int, int, std::uint32_t) {});
  const Running run =
      running_sum(cta, storage.scratch, cta.lane() == 0 ? static_cast<std::uint64_t>(found) : 0);
  if (run.total > kRankedMost) return static_cast<int>(run.total);
  const int base = static_cast<int>(cta.shuffle(run.before, 0));
  look_at_groups(cta, storage, row, listed, threshold, [&](int place, int token, std::uint32_t key) {
    cta.store_shared(storage.entries + base + place, entry_of(key, token));
  });
  sort_entries(cta, storage.entries, static_cast<int>(run.total));
  return static_cast<int>(run.total);
}

}  // namespace fourfold::sampling
