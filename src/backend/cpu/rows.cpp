#include "backend/cpu/rows.h"

#include <cmath>

namespace fourfold::backend::cpu {
namespace {

bool goes_before(std::span<const float> logits, std::int32_t a, std::int32_t b) {
  const float x = logits[static_cast<std::size_t>(a)];
  const float y = logits[static_cast<std::size_t>(b)];
  if (std::isnan(x) != std::isnan(y)) return !std::isnan(x);
  if (!std::isnan(x) && x != y) return x > y;
  return a < b;
}

}  // namespace

void norm_row(const fourfold::cpu::Kernels& kernels, const float* in, const NormWeights& weights,
              std::int64_t width, float* out) {
  const double mean = static_cast<double>(kernels.dot(in, in, width)) / static_cast<double>(width);
  const auto factor = static_cast<float>(1.0 / std::sqrt(mean + weights.epsilon));
  kernels.scale_by(in, factor, weights.weight, weights.adds_one ? 1.0f : 0.0f, width, out);
}

void turn_head(const float* turns, std::int64_t pairs, float* head) {
  for (std::int64_t j = 0; j < pairs; ++j) {
    const float a = head[j];
    const float b = head[j + pairs];
    head[j] = a * turns[j] - b * turns[pairs + j];
    head[j + pairs] = b * turns[j] + a * turns[pairs + j];
  }
}

void top_k_experts(const TopKExperts& op, std::span<const float> logits, std::span<std::int32_t> experts,
                   std::span<float> weights) {
  // Insertion into the few best so far: most logits are compared with the last of them and dropped.
  const auto count = static_cast<std::size_t>(op.count);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto expert = static_cast<std::int32_t>(i);
    if (kept == count && !goes_before(logits, expert, experts[count - 1])) continue;
    std::size_t place = kept < count ? kept++ : count - 1;
    for (; place > 0 && goes_before(logits, expert, experts[place - 1]); --place)
      experts[place] = experts[place - 1];
    experts[place] = expert;
  }
  const double largest = logits[static_cast<std::size_t>(experts.front())];
  const auto mass = [&](float logit) { return std::exp(static_cast<double>(logit) - largest); };
  // Softmax and then renormalising over the chosen equals softmax over the chosen.
  double total = 0;
  if (op.normalize)
    for (const std::int32_t expert : experts) total += mass(logits[static_cast<std::size_t>(expert)]);
  else
    for (const float logit : logits) total += mass(logit);
  for (std::size_t i = 0; i < count; ++i)
    weights[i] = static_cast<float>(mass(logits[static_cast<std::size_t>(experts[i])]) / total);
}

}  // namespace fourfold::backend::cpu
