// Top-k of one token's router logits by one warp, in f32: the k largest, ties to the lower expert, then the
// softmax over all experts restricted to them (renormalised, or not); or the same of sigmoid scores, as the
// rule says. A pure function of the row: nothing else enters.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_rule.h"

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

// Lane l holds the experts that follow those of lane l - 1, so that of two equal logits the one in the lower
// lane, or at the lower place of a lane, has the lower number.

// A tree for eight: each step waits for the one before. For sixteen a tree measured no faster (H200), for 32
// there are no registers for its inner nodes.
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

// 1 / (1 + e^-l) within 5 * 2^-24 of its value: e^-l errs by 1.5 ulp, the sum and the reciprocal by half of
// one each. device::sigmoid is shorter and errs eight times as much, which would decide between more experts.
template <class Cta>
FOURFOLD_DEVICE float sigmoid_score(float logit) {
  return Cta::reciprocal(Cta::add(device::exp_f32<Cta>(-logit), 1.0f));
}

// What experts are chosen by, in place of their logits.
template <int PerLane, class Cta>
FOURFOLD_DEVICE void score_for_choice(Cta cta, const RouteRule& rule, int experts, float (&logit)[PerLane]) {
#pragma unroll
  for (int i = 0; i < PerLane; ++i) logit[i] = sigmoid_score<Cta>(logit[i]);
  if (rule.choice_bias == nullptr) return;
  float bias[PerLane];
  load_logits(cta, rule.choice_bias, experts, bias);
#pragma unroll
  for (int i = 0; i < PerLane; ++i) logit[i] = Cta::add(logit[i], bias[i]);
}

// A key of zero is "absent"; NaN gets the smallest key that is present, so it is chosen last.
FOURFOLD_DEVICE std::uint32_t present_key(float value) {
  const std::uint32_t ordered = order_key(value);
  return ordered == 0u ? 1u : ordered;
}
FOURFOLD_DEVICE float value_of_present(std::uint32_t key) { return value_of_key(key == 1u ? 0u : key); }

// What the group from a lane's place `first` on counts: its two best, summed.
template <int PerLane, class Cta>
FOURFOLD_DEVICE float group_score(Cta cta, const std::uint32_t (&key)[PerLane], int first, int size) {
  std::uint32_t best = 0u, second = 0u;  // of this lane's
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const std::uint32_t own = i >= first && i < first + size ? key[i] : 0u;
    const std::uint32_t lower = own < best ? own : best;
    second = lower > second ? lower : second;
    best = own > best ? own : best;
  }
  const std::uint32_t top = cta.max_all(best), equal = cta.ballot(best == top);
  const bool mine = best == top && (equal & ((1u << cta.lane()) - 1u)) == 0u;
  return Cta::add(value_of_present(top), value_of_present(cta.max_all(mine ? second : best)));
}

// Experts outside the best groups become absent; of equal groups the lower one is kept, one that counts NaN
// last. Lane g has group g.
template <int PerLane, class Cta>
FOURFOLD_DEVICE void keep_groups(Cta cta, const RouteRule& rule, int experts, std::uint32_t (&key)[PerLane]) {
  const int lane = cta.lane(), size = experts / rule.groups;
  std::uint32_t own = 0u;
#pragma unroll 1
  for (int group = 0; group < rule.groups; ++group) {
    const float score = group_score(cta, key, group * size - PerLane * lane, size);
    if (lane == group) own = present_key(score);
  }
  int better = 0;
#pragma unroll 1
  for (int group = 0; group < rule.groups; ++group) {
    const std::uint32_t other = cta.shuffle(own, group);
    better += other > own || (other == own && group < lane);
  }
  const std::uint32_t kept = cta.ballot(lane < rule.groups && better < rule.groups_kept);
  int group = PerLane * lane / size, left = (group + 1) * size - PerLane * lane;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    if (left == 0) ++group, left = size;
    --left;
    if (group < rule.groups && (kept >> group & 1u) == 0u) key[i] = 0u;
  }
}

// The logits as they come, PerLane a lane. Sorting a lane's logits first makes the rounds shorter and takes
// longer than it saves, in steps and in code that has to arrive (H200: 0.6 us of 256 experts and 8 ranks, 1.0
// of 512 and 10).
//
// AnyRule: with the code for sigmoid scores, groups and a factor; else the rule says renormalise alone.
template <int PerLane, bool AnyRule, class Cta, class Chosen>
FOURFOLD_DEVICE void rank_as_they_come(Cta cta, const float* logits, int experts, int top_k,
                                       const RouteRule& rule, const Chosen& chosen) {
  const int lane = cta.lane();
  float logit[PerLane];
  load_logits(cta, logits, experts, logit);
  if constexpr (AnyRule)
    if (rule.sigmoid) score_for_choice(cta, rule, experts, logit);
  std::uint32_t key[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) key[i] = PerLane * lane + i < experts ? present_key(logit[i]) : 0u;
  if constexpr (AnyRule) {
    if (rule.groups > 1) keep_groups(cta, rule, experts, key);
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
    if (mine) chosen(rank, PerLane * lane + place, value_of_present(top));
    const int taken = mine ? place : -1;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) key[i] = taken == i ? 0u : key[i];
  }
}

// All lanes of the warp call it. chosen(rank, expert, logit) is called once a rank, by the lane that has it;
// with sigmoid scores it is given what the expert was chosen by, not its logit.
// MaxExperts: where registers are few, a kernel may leave out the way that needs the most of them.
template <int MaxExperts, bool AnyRule, class Cta, class Chosen>
FOURFOLD_DEVICE void rank_experts(Cta cta, const float* logits, int experts, int top_k, const RouteRule& rule,
                                  const Chosen& chosen) {
  static_assert(moe::kMaxExperts == 32 * 32);
  if (experts <= 32 * 8) return rank_as_they_come<8, AnyRule>(cta, logits, experts, top_k, rule, chosen);
  if (MaxExperts <= 32 * 16 || experts <= 32 * 16)
    return rank_as_they_come<16, AnyRule>(cta, logits, experts, top_k, rule, chosen);
  if constexpr (MaxExperts > 32 * 16)
    return rank_as_they_come<32, AnyRule>(cta, logits, experts, top_k, rule, chosen);
}

// Sigmoid scores of the chosen ones, without the bias they were chosen by. The smallest sum is not zero, as
// models have it: scores that are all zero stay so.
template <class Cta>
FOURFOLD_DEVICE float sigmoid_weight(Cta cta, float logit, int top_k, const RouteRule& rule) {
  float score = sigmoid_score<Cta>(logit);
  if (rule.renormalise) {
    float sum = 0.0f;
    for (int rank = 0; rank < top_k; ++rank) sum = Cta::add(sum, cta.shuffle(score, rank));
    score = Cta::mul(score, Cta::reciprocal(Cta::add(sum, 1e-20f)));
  }
  return Cta::mul(score, rule.scale);
}

// What a lane's rank was given by the rule.
struct Ranked {
  int expert;
  float logit;    // of softmax scores
  float largest;  // of rank 0
};

// The softmax over all experts at the lane's logit, restricted to the chosen ones when renormalised; or the
// sigmoid.
template <bool AnyRule, class Cta>
FOURFOLD_DEVICE float routing_weight(Cta cta, const float* logits, int experts, int top_k,
                                     const RouteRule& rule, const Ranked& own) {
  if constexpr (AnyRule)
    if (rule.sigmoid) return sigmoid_weight(cta, cta.load(logits + own.expert), top_k, rule);
  const float e = device::exp_f32<Cta>(Cta::add(own.logit, -own.largest));
  float sum = 0.0f;
  if (rule.renormalise) {
    for (int rank = 0; rank < top_k; ++rank) sum = Cta::add(sum, cta.shuffle(e, rank));
  } else {
    for (int expert = cta.lane(); expert < experts; expert += 32)
      sum = Cta::add(sum, device::exp_f32<Cta>(Cta::add(cta.load(logits + expert), -own.largest)));
    for (int mask = 16; mask > 0; mask /= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  }
  const float weight = Cta::mul(e, Cta::reciprocal(sum));
  return AnyRule ? Cta::mul(weight, rule.scale) : weight;
}

// All lanes of the warp call it; lane r receives rank r. expert_of_rank and logit_of_rank: room for top_k
// each in shared memory, this warp's own; who writes something else there meets the other lanes first.
template <int MaxExperts, bool AnyRule, class Cta>
FOURFOLD_DEVICE Choice top_k_experts(Cta cta, const float* logits, int experts, int top_k,
                                     const RouteRule& rule, std::int32_t* expert_of_rank,
                                     float* logit_of_rank) {
  rank_experts<MaxExperts, AnyRule>(cta, logits, experts, top_k, rule,
                                    [&](int rank, int expert, float logit) {
                                      cta.store_shared(expert_of_rank + rank, expert);
                                      cta.store_shared(logit_of_rank + rank, logit);
                                    });
  cta.sync_warp();  // every rank is written
  const int rank = cta.lane() < top_k ? cta.lane() : 0;
  const float logit = cta.load_shared(logit_of_rank + rank), largest = cta.load_shared(logit_of_rank);
  const int expert = cta.load_shared(expert_of_rank + rank);
  return {expert, routing_weight<AnyRule>(cta, logits, experts, top_k, rule, {expert, logit, largest})};
}

}  // namespace fourfold::moe_route
