#include "backend/reference/experts.h"

#include <algorithm>
#include <numeric>

namespace fourfold::backend::reference {
namespace {

// NaN last, ties to the lower index: an order that no input can break.
bool goes_before(std::span<const float> logits, std::int32_t a, std::int32_t b) {
  const bool a_is_nan = std::isnan(logits[a]);
  if (a_is_nan != std::isnan(logits[b])) return !a_is_nan;
  if (!a_is_nan && logits[a] != logits[b]) return logits[a] > logits[b];
  return a < b;
}

}  // namespace

void top_k_experts(const TopKExperts& op, std::span<const float> logits, std::span<std::int32_t> experts,
                   std::span<float> weights) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) { return goes_before(logits, a, b); });
  std::copy_n(order.begin(), op.count, experts.begin());

  const double largest = logits[order.front()];
  const auto mass = [&](std::int32_t expert) { return std::exp(logits[expert] - largest); };
  // Softmax and then renormalising over the chosen equals softmax over the chosen.
  double total = 0;
  for (std::size_t i = 0; i < (op.normalize ? experts.size() : order.size()); ++i) total += mass(order[i]);
  for (std::size_t i = 0; i < experts.size(); ++i) weights[i] = static_cast<float>(mass(experts[i]) / total);
}

void run_experts(std::span<const ExpertWeights> set, std::int64_t first_expert, Role role,
                 std::span<const float> in, std::span<const std::int32_t> experts,
                 std::span<const float> weights, std::span<float> out) {
  std::vector<double> sum(out.size());
  std::vector<float> result(out.size());
  for (std::size_t rank = 0; rank < experts.size(); ++rank) {
    const std::int64_t number = experts[rank] - first_expert;
    if (number < 0 || number >= std::ssize(set)) continue;  // another rank has it
    const ExpertWeights& expert = set[number];
    std::vector<float> gate(expert.gate->rows.count());
    std::vector<float> up(gate.size());
    linear(*expert.gate, role, in, gate);
    linear(*expert.up, role, in, up);
    swiglu(gate, up, gate);
    linear(*expert.down, role, gate, result, InputOf::expert);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(weights[rank]) * result[i];
  }
  std::ranges::transform(sum, out.begin(), [](double x) { return static_cast<float>(x); });
}

}  // namespace fourfold::backend::reference
