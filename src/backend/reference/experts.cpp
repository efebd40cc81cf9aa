#include "backend/reference/experts.h"

#include <algorithm>
#include <numeric>

namespace fourfold::backend::reference {
namespace {

// NaN last, ties to the lower index: an order that no input can break.
bool goes_before(std::span<const float> keys, std::int32_t a, std::int32_t b) {
  const bool a_is_nan = std::isnan(keys[a]);
  if (a_is_nan != std::isnan(keys[b])) return !a_is_nan;
  if (!a_is_nan && keys[a] != keys[b]) return keys[a] > keys[b];
  return a < b;
}

std::vector<std::int32_t> sorted(std::vector<std::int32_t> items, std::span<const float> keys) {
  std::ranges::sort(items, [&](std::int32_t a, std::int32_t b) { return goes_before(keys, a, b); });
  return items;
}

std::vector<std::int32_t> numbers(std::int32_t first, std::int64_t count) {
  std::vector<std::int32_t> items(count);
  std::iota(items.begin(), items.end(), first);
  return items;
}

// The experts that can be chosen: those of the groups that are kept.
std::vector<std::int32_t> candidates(const TopKExperts& op, std::span<const float> keys) {
  if (op.groups_kept == op.group_count) return numbers(0, std::ssize(keys));
  const std::int64_t length = std::ssize(keys) / op.group_count;
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<float> ranks;
  for (std::int64_t group = 0; group < op.group_count; ++group) {
    groups.push_back(sorted(numbers(static_cast<std::int32_t>(group * length), length), keys));
    ranks.push_back(keys[groups.back()[0]] + keys[groups.back()[1]]);
  }
  const std::vector<std::int32_t> order = sorted(numbers(0, op.group_count), ranks);
  std::vector<std::int32_t> kept;
  for (std::int64_t i = 0; i < op.groups_kept; ++i)
    kept.insert(kept.end(), groups[order[i]].begin(), groups[order[i]].end());
  return kept;
}

void clamped_swiglu(const RunExperts& op, std::span<const float> gate, std::span<const float> up,
                    std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double g = std::min(static_cast<double>(gate[i]), op.glu_limit);
    const double u = std::clamp(static_cast<double>(up[i]), -op.glu_limit, op.glu_limit);
    out[i] = static_cast<float>(g * sigmoid(op.glu_alpha * g) * (u + 1));
  }
}

// What each logit's score is a share of: of themselves all together (softmax), or of 1 (sigmoid).
class Scores {
 public:
  Scores(const TopKExperts& op, std::span<const float> logits)
      : is_softmax_(op.score == RouterScore::softmax) {
    if (!is_softmax_) return;
    const std::vector<std::int32_t> falling = sorted(numbers(0, std::ssize(logits)), logits);
    largest_ = logits[falling.front()];
    all_ = 0;
    for (const std::int32_t expert : falling) all_ += mass(logits[expert]);
  }
  double mass(float logit) const { return is_softmax_ ? std::exp(logit - largest_) : sigmoid(logit); }
  double all() const { return all_; }

 private:
  bool is_softmax_;
  double largest_ = 0, all_ = 1;
};

}  // namespace

std::vector<float> choice_keys(const TopKExperts& op, std::span<const float> logits,
                               std::span<const float> choice_bias) {
  // Softmax keeps the order of the logits; where that is all that matters, rounding makes no ties.
  std::vector<float> keys(logits.begin(), logits.end());
  if (op.score != RouterScore::softmax || !choice_bias.empty() || op.groups_kept < op.group_count) {
    const Scores scores(op, logits);
    for (float& key : keys) key = static_cast<float>(scores.mass(key) / scores.all());
  }
  for (std::size_t i = 0; i < choice_bias.size(); ++i) keys[i] += choice_bias[i];
  return keys;
}

void choose_experts(const TopKExperts& op, std::span<const float> keys, std::span<std::int32_t> experts) {
  const std::vector<std::int32_t> order = sorted(candidates(op, keys), keys);
  std::copy_n(order.begin(), op.count, experts.begin());
}

void weigh_experts(const TopKExperts& op, std::span<const float> logits,
                   std::span<const std::int32_t> experts, std::span<float> weights) {
  const Scores scores(op, logits);
  // Softmax and then renormalising over the chosen equals softmax over the chosen.
  double total = scores.all();
  if (op.normalize) {
    total = op.score == RouterScore::softmax ? 0 : TopKExperts::kSumGuard;
    for (const std::int32_t expert : experts) total += scores.mass(logits[expert]);
  }
  for (std::size_t i = 0; i < experts.size(); ++i)
    weights[i] = static_cast<float>(scores.mass(logits[experts[i]]) / total * op.scale);
}

void top_k_experts(const TopKExperts& op, std::span<const float> logits, std::span<std::int32_t> experts,
                   std::span<float> weights, std::span<const float> choice_bias) {
  choose_experts(op, choice_keys(op, logits, choice_bias), experts);
  weigh_experts(op, logits, experts, weights);
}

void run_experts(const RunExperts& op, std::span<const ExpertWeights> set, std::int64_t first_expert,
                 Role role, std::span<const float> in, std::span<const std::int32_t> experts,
                 std::span<const float> weights, std::span<float> out) {
  std::vector<double> sum(out.size());
  std::vector<float> result(out.size());
  for (std::size_t rank = 0; rank < experts.size(); ++rank) {
    const std::int64_t number = experts[rank] - first_expert;
    if (number < 0 || number >= std::ssize(set)) continue;  // another rank has it
    const ExpertWeights& expert = set[number];
    std::vector<float> gate(expert.gate->rows.count());
    std::vector<float> up(gate.size());
    linear(*expert.gate, role, in, gate, InputOf::rows, expert.gate_bias);
    linear(*expert.up, role, in, up, InputOf::rows, expert.up_bias);
    if (op.glu == GluKind::plain)
      swiglu(gate, up, gate);
    else
      clamped_swiglu(op, gate, up, gate);
    linear(*expert.down, role, gate, result, InputOf::expert, expert.down_bias);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(weights[rank]) * result[i];
  }
  std::ranges::transform(sum, out.begin(), [](double x) { return static_cast<float>(x); });
}

}  // namespace fourfold::backend::reference
