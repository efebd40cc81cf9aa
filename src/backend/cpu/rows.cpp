#include "backend/cpu/rows.h"

#include <cmath>
#include <limits>
#include <vector>

namespace fourfold::backend::cpu {
namespace {

bool goes_before(std::span<const float> keys, std::int32_t a, std::int32_t b) {
  const float x = keys[static_cast<std::size_t>(a)];
  const float y = keys[static_cast<std::size_t>(b)];
  if (std::isnan(x) != std::isnan(y)) return !std::isnan(x);
  if (!std::isnan(x) && x != y) return x > y;
  return a < b;
}

// The best of items first .. first + item_count, best first, into those that `kept` are there already.
// Insertion into the few best so far: most keys are compared with the last of them and dropped.
void keep_best(std::span<const float> keys, std::int32_t first, std::int64_t item_count,
               std::span<std::int32_t> best, std::size_t& kept) {
  for (std::int32_t item = first; item < first + item_count; ++item) {
    if (kept == best.size() && !goes_before(keys, item, best.back())) continue;
    std::size_t place = kept < best.size() ? kept++ : best.size() - 1;
    for (; place > 0 && goes_before(keys, item, best[place - 1]); --place) best[place] = best[place - 1];
    best[place] = item;
  }
}

void keep_best_of_groups(const TopKExperts& op, std::span<const float> keys, std::span<std::int32_t> best) {
  const std::int64_t length = static_cast<std::int64_t>(keys.size()) / op.group_count;
  std::vector<float> ranks;
  for (std::int64_t group = 0; group < op.group_count; ++group) {
    std::int32_t pair[2];
    std::size_t kept = 0;
    keep_best(keys, static_cast<std::int32_t>(group * length), length, pair, kept);
    ranks.push_back(keys[static_cast<std::size_t>(pair[0])] + keys[static_cast<std::size_t>(pair[1])]);
  }
  std::vector<std::int32_t> groups(static_cast<std::size_t>(op.groups_kept));
  std::size_t kept_groups = 0, kept = 0;
  keep_best(ranks, 0, op.group_count, groups, kept_groups);
  for (const std::int32_t group : groups)
    keep_best(keys, static_cast<std::int32_t>(group * length), length, best, kept);
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
                   std::span<float> weights, std::span<const float> choice_bias) {
  const bool is_softmax = op.score == RouterScore::softmax;
  const bool has_groups = op.groups_kept < op.group_count;
  double largest = std::numeric_limits<double>::quiet_NaN();
  for (const float logit : logits) largest = std::fmax(largest, static_cast<double>(logit));
  const auto mass = [&](float logit) {
    const auto x = static_cast<double>(logit);
    return is_softmax ? std::exp(x - largest) : 1 / (1 + std::exp(-x));
  };
  const auto sum_of_all = [&] {
    double sum = 0;
    for (const float logit : logits) sum += mass(logit);
    return sum;
  };

  // Softmax keeps the order of the logits; where that is all that matters, rounding makes no ties.
  std::vector<float> scores;
  if (!is_softmax || !choice_bias.empty() || has_groups) {
    const double all = is_softmax ? sum_of_all() : 1;
    for (const float logit : logits) scores.push_back(static_cast<float>(mass(logit) / all));
    for (std::size_t i = 0; i < choice_bias.size(); ++i) scores[i] += choice_bias[i];
  }
  const std::span<const float> keys = scores.empty() ? logits : std::span<const float>(scores);
  std::size_t kept = 0;
  if (has_groups)
    keep_best_of_groups(op, keys, experts);
  else
    keep_best(keys, 0, static_cast<std::int64_t>(keys.size()), experts, kept);

  // Softmax and then renormalising over the chosen equals softmax over the chosen.
  double total = is_softmax ? 0 : op.normalize ? TopKExperts::kSumGuard : 1;
  if (op.normalize)
    for (const std::int32_t expert : experts) total += mass(logits[static_cast<std::size_t>(expert)]);
  else if (is_softmax)
    total = sum_of_all();
  for (std::size_t i = 0; i < experts.size(); ++i)
    weights[i] = static_cast<float>(mass(logits[static_cast<std::size_t>(experts[i])]) / total * op.scale);
}

}  // namespace fourfold::backend::cpu
