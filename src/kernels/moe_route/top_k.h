// Top-k of one token's router logits by one warp, in f32: the k largest, ties to the lower expert, then the
// softmax over all experts restricted to them (renormalised, or not). A pure function of the row: nothing
// else enters.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"
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

// PerLane logits a lane: lane l holds experts l, l + 32, ...
template <int PerLane, class Cta>
FOURFOLD_DEVICE Choice choose_experts_of(Cta cta, const float* logits, int experts, int top_k,
                                         bool renormalise) {
  const int lane = cta.lane();
  // A key of zero is "absent"; NaN logits get the smallest key that is present, so they are chosen last.
  std::uint32_t key[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int expert = 32 * i + lane;
    const std::uint32_t ordered = expert < experts ? order_key(cta.load(logits + expert)) : 0u;
    key[i] = expert < experts && ordered == 0u ? 1u : ordered;
  }
  Choice mine{0, 0.0f};
  float my_logit = 0.0f, largest = 0.0f;
  for (int rank = 0; rank < top_k; ++rank) {
    std::uint32_t best = 0u;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) best = key[i] > best ? key[i] : best;
    const std::uint32_t top = cta.max_all(best);
    // Of the experts with that key the lowest wins: the largest complement of an index.
    std::uint32_t claim = 0u;
#pragma unroll
    for (int i = PerLane - 1; i >= 0; --i)
      claim = key[i] == top ? ~static_cast<std::uint32_t>(32 * i + lane) : claim;
    const int winner = static_cast<int>(~cta.max_all(claim));
#pragma unroll
    for (int i = 0; i < PerLane; ++i) key[i] = 32 * i + lane == winner ? 0u : key[i];
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
    for (int expert = lane; expert < experts; expert += 32)
      sum = Cta::add(sum, device::exp_f32<Cta>(Cta::add(cta.load(logits + expert), -largest)));
    for (int mask = 16; mask > 0; mask /= 2) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  }
  mine.weight = Cta::mul(e, Cta::reciprocal(sum));
  return mine;
}

// All lanes of the warp call it; lane r receives rank r.
template <class Cta>
FOURFOLD_DEVICE Choice choose_experts(Cta cta, const float* logits, int experts, int top_k,
                                      bool renormalise) {
  static_assert(moe::kMaxExperts == 32 * 32);
  if (experts <= 32 * 8) return choose_experts_of<8>(cta, logits, experts, top_k, renormalise);
  if (experts <= 32 * 16) return choose_experts_of<16>(cta, logits, experts, top_k, renormalise);
  return choose_experts_of<32>(cta, logits, experts, top_k, renormalise);
}

}  // namespace fourfold::moe_route
