// The ops that look at one row alone.
#pragma once

#include <cstdint>
#include <span>

#include "backend/ops.h"
#include "kernels/cpu/kernels.h"

namespace fourfold::backend::cpu {

struct NormWeights {
  const float* weight;
  bool adds_one;
  double epsilon;
};
// x * rsqrt(mean(x^2) + epsilon) * (w, or 1 + w)
void norm_row(const fourfold::cpu::Kernels& kernels, const float* in, const NormWeights& weights,
              std::int64_t width, float* out);

// Rotates the pairs (j, j + pairs) of a head in place. turns: [2, pairs], cosines and sines.
void turn_head(const float* turns, std::int64_t pairs, float* head);

// experts, weights: [count], best first; NaN goes last, ties go to the lower index. An empty choice_bias is
// none.
void top_k_experts(const TopKExperts& op, std::span<const float> logits, std::span<std::int32_t> experts,
                   std::span<float> weights, std::span<const float> choice_bias = {});

}  // namespace fourfold::backend::cpu
