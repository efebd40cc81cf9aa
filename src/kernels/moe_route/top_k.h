// Top-k of one token's router logits by one warp, in f32: the k largest, ties to the lower expert, then the softmax over
// all experts restricted to them (renormalised, or not). A pure function of the row: nothing else enters.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/moe/tables.h"

namespace fourfold::moe_route {

inline constexpr int kLogitsPerLane = moe::kMaxExperts / 32;

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
  int expert;    // of rank `lane`; undefined for lanes >= top_k
  float weight;
};

// All lanes of the warp call it; lane r receives rank r.
template <class Cta>
FOURFOLD_DEVICE Choice choose_experts(Cta cta, const float* logits, int experts, int top_k, bool renormalise) {
  const int lane = cta.lane();
  // Lane l holds experts l, l + 32, ... ; a key of zero is "absent" (NaN logits are chosen last, by index order).
  std::uint32_t key[kLogitsPerLane];
#pragma unroll
  for (int i = 0; i < kLogitsPerLane; ++i) {
    key[i] = 0u;
    if (32 * i < experts) {
      const int expert = 32 * i + lane;
      if (expert < experts) {
        const std::uint32_t ordered = order_key(cta.load(logits + expert));
        key[i] = ordered == 0u ? 1u : ordered;
      }
    }
  }
  Choice mine{0, 0.0f};
  float my_logit = 0.0f, largest = 0.0f;
  for (int rank = 0; rank < top_k; ++rank) {
    std::uint32_t best = 0u;
    int best_index = 0;
#pragma unroll
    for (int i = 0; i < kLogitsPerLane; ++i)
      if (32 * i < experts && key[i] > best) {
        best = key[i];
        best_index = i;
      }
    const std::uint32_t top = cta.max_all(best);
    // Of the lanes that hold it, the lowest expert wins.
    const int expert = 32 * best_index + lane;
    const std::uint32_t claim = best == top ? ~static_cast<std::uint32_t>(expert) : 0u;
    const int winner = static_cast<int>(~cta.max_all(claim));
#pragma unroll
    for (int i = 0; i < kLogitsPerLane; ++i)
      if (32 * i < experts && 32 * i + lane == winner) key[i] = 0u;
    const float logit = value_of_key(top == 1u ? 0u : top);
    if (rank == 0) largest = logit;
    if (lane == rank) {
      mine.expert = winner;
      my_logit = logit;
    }
  }
  const float e = device::exp_f32<Cta>(Cta::add(my_logit, -largest));
  float sum = 0.0f;
  if (renormalise) {
    for (int rank = 0; rank < top_k; ++rank) sum = Cta::add(sum, cta.shuffle(e, rank));
  } else {
    float part = 0.0f;
    for (int expert = lane; expert < experts; expert += 32)
      part = Cta::add(part, device::exp_f32<Cta>(Cta::add(cta.load(logits + expert), -largest)));
    for (int mask = 16; mask > 0; mask /= 2) part = Cta::add(part, cta.shuffle_xor(part, mask));
    sum = part;
  }
  mine.weight = Cta::mul(e, Cta::reciprocal(sum));
  return mine;
}

}  // namespace fourfold::moe_route
