// Top-k of one token's router logits by one warp, in f32: the k largest, ties to the lower expert, then the
// softmax over all experts restricted to them (renormalised, or not). A pure function of the row: nothing
// else enters.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/tables.h"

namespace fourfold::moe_route {

// Unsigned key in the order of the floats; NaN sorts below everything.
constexpr std::uint32_t order_key(float value) {
  if (value != value) return 0u;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
constexpr float value_of_key(std::uint32_t key) {
  if (key == 0u) return std::bit_cast<float>(0x7FFFFFFFu);
  return std::bit_cast<float>((key & 0x80000000u) ? key & 0x7FFFFFFFu : ~key);
}

struct Choice {
  int expert;  // of rank `lane`; undefined for lanes >= top_k
  float weight;
};

// In both ways below lane l holds the experts that follow those of lane l - 1, so that of two equal logits
// the one in the lower lane, or at the lower place of a lane, has the lower number.

// A tree where there are registers for its inner nodes: each step waits for the one before.
template <int Count>
FOURFOLD_DEVICE std::uint32_t largest_of(const std::uint32_t (&key)[Count]) {
  if constexpr (Count == 8) {
    std::uint32_t larger[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) larger[i] = key[i] > key[i + 4] ? key[i] : key[i + 4];
#pragma unroll
    for (int i = 0; i < 2; ++i) larger[i] = larger[i] > larger[i + 2] ? larger[i] : larger[i + 2];
    return larger[0] > larger[1] ? larger[0] : larger[1];
  } else {
    std::uint32_t largest = key[0];
#pragma unroll
    for (int i = 1; i < Count; ++i) largest = key[i] > largest ? key[i] : largest;
    return largest;
  }
}

// A lane's logits; four at a time where all lanes have theirs and they lie so: a load costs what its sectors
// cost.
template <int PerLane, class Cta>
FOURFOLD_DEVICE void load_logits(Cta cta, const float* logits, int experts, float (&logit)[PerLane]) {
  const float* mine = logits + PerLane * cta.lane();
  if (experts == 32 * PerLane && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < PerLane; i += 4) {
      const auto four = cta.load(reinterpret_cast<const device::F32x4*>(mine + i));
#pragma unroll
      for (int j = 0; j < 4; ++j) logit[i + j] = four.v[j];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < PerLane; ++i) logit[i] = PerLane * cta.lane() + i < experts ? cta.load(mine + i) : 0.0f;
}

// The logits as they come, PerLane a lane. With eight, sorting first would take longer than looking at all of
// them in every round (H200, 256 experts, 8 ranks: 0.6 us); with 32, sorted lists would not fit the
// registers.
template <int PerLane, class Cta, class Chosen>
FOURFOLD_DEVICE void rank_as_they_come(Cta cta, const float* logits, int experts, int top_k,
                                       const Chosen& chosen) {
  const int lane = cta.lane();
  // A key of zero is "absent"; NaN logits get the smallest key that is present, so they are chosen last.
  float logit[PerLane];
  load_logits(cta, logits, experts, logit);
  std::uint32_t key[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const bool present = PerLane * lane + i < experts;
    const std::uint32_t ordered = present ? order_key(logit[i]) : 0u;
    key[i] = present && ordered == 0u ? 1u : ordered;
  }
  // Rolled and without branches: each round depends on the one before, so what counts is the length of one.
#pragma unroll 1
  for (int rank = 0; rank < top_k; ++rank) {
    const std::uint32_t best = largest_of(key), top = cta.max_all(best);
    int place = 0;  // of the best, the lowest of equals
#pragma unroll
    for (int i = PerLane - 1; i >= 0; --i) place = key[i] == best ? i : place;
    const std::uint32_t equal = cta.ballot(best == top);
    const bool mine = best == top && (equal & ((1u << lane) - 1u)) == 0u;
    if (mine) chosen(rank, PerLane * lane + place, value_of_key(top == 1u ? 0u : top));
    const int taken = mine ? place : -1;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) key[i] = taken == i ? 0u : key[i];
  }
}

// Eight experts of a lane, best first; ties in the order of their numbers. Keys and the experts' places among
// the eight (three bits each) move down when the best is taken.
struct SortedEight {
  std::uint32_t key[8];
  std::uint32_t places;
};

template <class Cta>
FOURFOLD_DEVICE SortedEight sort_eight(Cta cta, const float* logits, int first, int experts) {
  // Key in the upper half, the complement of the place below: one comparison settles ties too. A key of zero
  // is "absent"; NaN logits get the smallest key that is present, so they are chosen last.
  std::uint64_t entry[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool present = first + i < experts;
    const std::uint32_t ordered = present ? order_key(cta.load(logits + first + i)) : 0u;
    entry[i] =
        std::uint64_t{present && ordered == 0u ? 1u : ordered} << 32 | static_cast<std::uint32_t>(7 - i);
  }
  // Nineteen exchanges sort eight.
  constexpr std::uint8_t pairs[19][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6},
                                         {3, 7}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {2, 4}, {3, 5},
                                         {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
#pragma unroll
  for (int i = 0; i < 19; ++i) {
    std::uint64_t &a = entry[pairs[i][0]], &b = entry[pairs[i][1]];
    const std::uint64_t larger = a > b ? a : b, smaller = a > b ? b : a;
    a = larger;
    b = smaller;
  }
  SortedEight sorted{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sorted.key[i] = static_cast<std::uint32_t>(entry[i] >> 32);
    sorted.places |= (7u - static_cast<std::uint32_t>(entry[i])) << (3 * i);
  }
  return sorted;
}

// Two sorted lists of eight a lane.
template <class Cta, class Chosen>
FOURFOLD_DEVICE void rank_sorted(Cta cta, const float* logits, int experts, int top_k, const Chosen& chosen) {
  constexpr int lists = 2;
  const int lane = cta.lane();
  SortedEight list[lists];
#pragma unroll
  for (int i = 0; i < lists; ++i) list[i] = sort_eight(cta, logits, 8 * (lists * lane + i), experts);
#pragma unroll 1
  for (int rank = 0; rank < top_k; ++rank) {
    std::uint32_t best = list[0].key[0], places = list[0].places;
    int from = 0;
#pragma unroll
    for (int i = 1; i < lists; ++i) {
      const bool better = list[i].key[0] > best;
      from = better ? i : from;
      places = better ? list[i].places : places;
      best = better ? list[i].key[0] : best;
    }
    const std::uint32_t top = cta.max_all(best);
    const std::uint32_t equal = cta.ballot(best == top);
    const bool mine = best == top && (equal & ((1u << lane) - 1u)) == 0u;
    if (mine)
      chosen(rank, 8 * (lists * lane + from) + static_cast<int>(places & 7u),
             value_of_key(top == 1u ? 0u : top));
#pragma unroll
    for (int i = 0; i < lists; ++i) {
      const bool taken = mine && from == i;
#pragma unroll
      for (int j = 0; j < 7; ++j) list[i].key[j] = taken ? list[i].key[j + 1] : list[i].key[j];
      list[i].key[7] = taken ? 0u : list[i].key[7];
      list[i].places = taken ? list[i].places >> 3 : list[i].places;
    }
  }
}

// All lanes of the warp call it. chosen(rank, expert, logit) is called once a rank, by the lane that has it.
// MaxExperts: where registers are few, a kernel may leave out the way that needs the most of them.
template <int MaxExperts, class Cta, class Chosen>
FOURFOLD_DEVICE void rank_experts(Cta cta, const float* logits, int experts, int top_k,
                                  const Chosen& chosen) {
  static_assert(moe::kMaxExperts == 32 * 32);
  if (experts <= 32 * 8) return rank_as_they_come<8>(cta, logits, experts, top_k, chosen);
  if (MaxExperts <= 32 * 16 || experts <= 32 * 16) return rank_sorted(cta, logits, experts, top_k, chosen);
  if constexpr (MaxExperts > 32 * 16) return rank_as_they_come<32>(cta, logits, experts, top_k, chosen);
}

// The softmax over all experts at the lane's logit, restricted to the chosen ones when renormalised.
template <class Cta>
FOURFOLD_DEVICE float routing_weight(Cta cta, const float* logits, int experts, int top_k, bool renormalise,
                                     float logit, float largest) {
  const float e = device::exp_f32<Cta>(Cta::add(logit, -largest));
  float sum = 0.0f;
  if (renormalise) {
    for (int rank = 0; rank < top_k; ++rank) sum = Cta::add(sum, cta.shuffle(e, rank));
  } else {
    for (int expert = cta.lane(); expert < experts; expert += 32)
      sum = Cta::add(sum, device::exp_f32<Cta>(Cta::add(cta.load(logits + expert), -largest)));
    for (int mask = 16; mask > 0; mask /= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  }
  return Cta::mul(e, Cta::reciprocal(sum));
}

// All lanes of the warp call it; lane r receives rank r. expert_of_rank and logit_of_rank: room for top_k
// each in shared memory, this warp's own; who writes something else there meets the other lanes first.
template <int MaxExperts, class Cta>
FOURFOLD_DEVICE Choice choose_experts(Cta cta, const float* logits, int experts, int top_k, bool renormalise,
                                      std::int32_t* expert_of_rank, float* logit_of_rank) {
  rank_experts<MaxExperts>(cta, logits, experts, top_k, [&](int rank, int expert, float logit) {
    cta.store_shared(expert_of_rank + rank, expert);
    cta.store_shared(logit_of_rank + rank, logit);
  });
  cta.sync_warp();  // every rank is written
  const int rank = cta.lane() < top_k ? cta.lane() : 0;
  const float logit = cta.load_shared(logit_of_rank + rank), largest = cta.load_shared(logit_of_rank);
  const int expert = cta.load_shared(expert_of_rank + rank);
  return {expert, routing_weight(cta, logits, experts, top_k, renormalise, logit, largest)};
}

}  // namespace fourfold::moe_route
