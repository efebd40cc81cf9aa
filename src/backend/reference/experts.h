// The meaning of routing and of the routed experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/reference/dense.h"

namespace fourfold::backend::reference {

// What a router's rule is made of. Its keys: the scores with their bias, or the logits where these have the
// same order. An empty choice_bias is none.
std::vector<float> choice_keys(const TopKExperts& op, std::span<const float> logits,
                               std::span<const float> choice_bias);
// experts and weights: [count], best first. The weights are those the logits give to any experts.
void choose_experts(const TopKExperts& op, std::span<const float> keys, std::span<std::int32_t> experts);
void weigh_experts(const TopKExperts& op, std::span<const float> logits,
                   std::span<const std::int32_t> experts, std::span<float> weights);
// All of it.
void top_k_experts(const TopKExperts& op, std::span<const float> logits, std::span<std::int32_t> experts,
                   std::span<float> weights, std::span<const float> choice_bias = {});

struct ExpertWeights {
  const Weight* gate;
  const Weight* up;
  const Weight* down;
  std::span<const float> gate_bias = {};  // empty: none
  std::span<const float> up_bias = {};
  std::span<const float> down_bias = {};
};
// The op's activation. The set's experts are number first_expert and those behind it; choices of others add
// nothing.
void run_experts(const RunExperts& op, std::span<const ExpertWeights> set, std::int64_t first_expert,
                 Role role, std::span<const float> in, std::span<const std::int32_t> experts,
                 std::span<const float> weights, std::span<float> out);

}  // namespace fourfold::backend::reference
