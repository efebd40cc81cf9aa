#include "kernels/reference/layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/device/functions.h"
#include "kernels/device/sim/cta.h"
#include "kernels/record/record.h"

namespace fourfold::reference {
namespace {

using Host = device::SimCta;  // its numeric members are the exact host arithmetic

struct Scaled {
  float bits;
  double value;
  double bound;
};

float decode_factor(const LayerModel& model, const Weights& weights) {
  if (model.w4a4 || weights.is_dense()) return 1.0f;
  return weights.is_mxfp4() ? record::Mxfp4::half_decode_factor : record::Nvfp4::half_decode_factor;
}

Scaled scaled(const LayerModel& model, const Weights& weights, const Dot& dot, float global,
              float token_scale) {
  const float factor = Host::mul(Host::mul(global, token_scale), decode_factor(model, weights));
  const double exact = static_cast<double>(global) * token_scale;
  const double value = dot.value * exact;
  return {Host::mul(dot.bits, factor), value, dot.bound * exact + std::abs(value) * 0x1p-22 + 0x1p-126};
}

Scaled biased(const Scaled& sum, const std::vector<float>& bias, std::int64_t row) {
  if (bias.empty()) return sum;
  const float more = bias[static_cast<std::size_t>(row)];
  const double value = sum.value + more;
  return {Host::add(sum.bits, more), value, sum.bound + (std::abs(value) + sum.bound) * 0x1p-24 + 0x1p-149};
}

// A token as a one-row NVFP4 matrix.
Weights quantized(const std::vector<float>& values, float inverse_scale) {
  Weights row;
  row.rows = 1;
  row.columns = static_cast<std::int64_t>(values.size());
  for (std::size_t block = 0; block < values.size() / 16; ++block) {
    float amax = 0.0f;
    for (std::size_t i = 0; i < 16; ++i) amax = Host::max(amax, Host::abs(values[16 * block + i]));
    const E4m3 scale = nvfp4_activation_scale(amax, inverse_scale);
    const float multiplier = nvfp4_activation_multiplier(scale, inverse_scale);
    row.scale_bytes.push_back(scale.bits);
    for (std::size_t i = 0; i < 16; ++i)
      row.codes.push_back(nvfp4_activation_code(values[16 * block + i], multiplier));
  }
  return row;
}

Bf16 rounded(float value) { return {static_cast<std::uint16_t>(Host::pack_bf16(value, 0.0f))}; }

// The activation between the GEMMs, as its bits: what GEMM2 reads is exact input to it, so errors start
// afresh there.
std::vector<float> activations(const LayerModel& model, const Expert& expert, const Bf16* token,
                               const Weights& slot) {
  std::vector<float> values;
  const float token_scale = model.w4a4 ? expert.gate_up_input_scale : 1.0f;
  for (std::int64_t neuron = 0; neuron < model.intermediate; ++neuron) {
    const auto half = [&](const Weights& weights, float global, const std::vector<float>& bias) {
      const Dot dot = model.w4a4 ? dot_w4a4(weights, neuron, slot, 0, model.order)
                                 : dot_w4a16(weights, neuron, token, model.order);
      return biased(scaled(model, weights, dot, global, token_scale), bias, neuron).bits;
    };
    const float gate = half(expert.gate, expert.gate_scale, expert.gate_bias);
    const float up = half(expert.up, expert.up_scale, expert.up_bias);
    values.push_back(model.clamped ? device::clamped_swiglu<Host>(gate, up, model.glu_alpha, model.glu_limit)
                                   : device::swiglu<Host>(gate, up));
  }
  return values;
}

void add_expert(const LayerModel& model, const Expert& expert, float weight, bool first, const Bf16* token,
                std::vector<float>& sum, OutputRow& row) {
  Weights slot;
  if (model.w4a4) {
    std::vector<float> values(static_cast<std::size_t>(model.hidden));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(token[i]);
    slot = quantized(values, expert.gate_up_input_inverse);
  }
  const std::vector<float> inner = activations(model, expert, token, slot);
  std::vector<Bf16> inner_half;
  for (const float value : inner) inner_half.push_back(rounded(value));
  const Weights inner_fp4 = model.w4a4 ? quantized(inner, expert.down_input_inverse) : Weights{};
  const float token_scale = model.w4a4 ? expert.down_input_scale : 1.0f;
  for (std::int64_t column = 0; column < model.hidden; ++column) {
    const Dot dot = model.w4a4 ? dot_w4a4(expert.down, column, inner_fp4, 0, model.order)
                               : dot_w4a16(expert.down, column, inner_half.data(), model.order);
    Scaled part =
        biased(scaled(model, expert.down, dot, expert.down_scale, token_scale), expert.down_bias, column);
    part.bits = Host::mul(part.bits, weight);
    part.value *= weight;
    part.bound = part.bound * weight + std::abs(part.value) * 0x1p-23;
    if (model.order == Order::prefill) {
      part.bits = to_float(rounded(part.bits));
      part.bound += std::abs(part.value) * 0x1p-8 + 0x1p-133;
    }
    const auto at = static_cast<std::size_t>(column);
    sum[at] = first ? part.bits : Host::add(sum[at], part.bits);
    row.value[at] += part.value;
    row.bound[at] += part.bound + std::abs(row.value[at]) * 0x1p-23;
  }
}

// Total order of scores: the larger first, NaN after everything. -0 sorts below +0, as its bits do.
std::int64_t order_of(float value) {
  if (value != value) return std::int64_t{-1};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::int64_t>((bits & 0x80000000u) ? ~bits : bits | 0x80000000u);
}

// The numbers of so many values, the largest first, of equal ones the lower number.
std::vector<int> largest_first(const std::vector<float>& values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return order_of(values[static_cast<std::size_t>(a)]) > order_of(values[static_cast<std::size_t>(b)]);
  });
  return order;
}

float sigmoid_of(float logit) { return Host::reciprocal(Host::add(device::exp_f32<Host>(-logit), 1.0f)); }

// Which groups are kept: those whose two best scores sum to the most.
std::vector<bool> groups_kept(const std::vector<float>& scores, const moe_route::RouteRule& rule) {
  const auto size = static_cast<std::ptrdiff_t>(scores.size()) / rule.groups;
  std::vector<float> sums;
  for (auto group = scores.begin(); group != scores.end(); group += size) {
    const std::vector<float> own(group, group + size);
    const std::vector<int> order = largest_first(own);
    sums.push_back(
        Host::add(own[static_cast<std::size_t>(order[0])], own[static_cast<std::size_t>(order[1])]));
  }
  const std::vector<int> order = largest_first(sums);
  std::vector<bool> kept(sums.size());
  for (int i = 0; i < rule.groups_kept; ++i)
    kept[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = true;
  return kept;
}

Route sigmoid_route(const std::vector<float>& logits, int top_k, const moe_route::RouteRule& rule) {
  std::vector<float> scores;
  for (std::size_t expert = 0; expert < logits.size(); ++expert) {
    const float score = sigmoid_of(logits[expert]);
    scores.push_back(rule.choice_bias ? Host::add(score, rule.choice_bias[expert]) : score);
  }
  const std::vector<bool> kept = rule.groups > 1 ? groups_kept(scores, rule) : std::vector<bool>{true};
  Route result;
  float sum = 0.0f;
  for (const int expert : largest_first(scores)) {
    const auto at = static_cast<std::size_t>(expert);
    if (!kept[at * kept.size() / logits.size()] || std::ssize(result.experts) == top_k) continue;
    result.experts.push_back(expert);
    result.weights.push_back(sigmoid_of(logits[at]));
    sum = Host::add(sum, result.weights.back());
  }
  const float inverse = Host::reciprocal(Host::add(sum, 1e-20f));
  for (float& weight : result.weights)
    weight = Host::mul(rule.renormalise ? Host::mul(weight, inverse) : weight, rule.scale);
  return result;
}

Route softmax_route(const std::vector<float>& logits, int top_k, const moe_route::RouteRule& rule) {
  const std::vector<int> order = largest_first(logits);
  Route result;
  const auto logit_of = [&](int expert) { return logits[static_cast<std::size_t>(expert)]; };
  const float first = logit_of(order[0]);
  const float largest = first != first ? std::bit_cast<float>(0x7FFFFFFFu) : first;
  std::vector<float> e;
  for (int rank = 0; rank < top_k; ++rank) {
    result.experts.push_back(order[static_cast<std::size_t>(rank)]);
    e.push_back(device::exp_f32<Host>(Host::add(logit_of(result.experts.back()), -largest)));
  }
  float sum = 0.0f;
  if (rule.renormalise) {
    for (const float part : e) sum = Host::add(sum, part);
  } else {
    // 32 partial sums, folded in halves: the order of a warp.
    float lane[32] = {};
    for (std::size_t expert = 0; expert < logits.size(); ++expert)
      lane[expert % 32] =
          Host::add(lane[expert % 32], device::exp_f32<Host>(Host::add(logits[expert], -largest)));
    for (int mask = 16; mask > 0; mask /= 2) {
      float next[32];
      for (int l = 0; l < 32; ++l) next[l] = Host::add(lane[l], lane[l ^ mask]);
      std::copy(next, next + 32, lane);
    }
    sum = lane[0];
  }
  for (const float part : e)
    result.weights.push_back(Host::mul(Host::mul(part, Host::reciprocal(sum)), rule.scale));
  return result;
}

}  // namespace

Route route(const float* logits, int experts, int top_k, const moe_route::RouteRule& rule) {
  const std::vector<float> row(logits, logits + experts);
  return rule.sigmoid ? sigmoid_route(row, top_k, rule) : softmax_route(row, top_k, rule);
}

OutputRow layer_row(const LayerModel& model, const moe_route::RouteRule& rule, const float* logits,
                    const Bf16* token) {
  const Route chosen = route(logits, static_cast<int>(model.experts.size()), model.top_k, rule);
  const auto columns = static_cast<std::size_t>(model.hidden);
  OutputRow row;
  row.value.assign(columns, 0.0);
  row.bound.assign(columns, 0.0);
  std::vector<float> sum(columns, 0.0f);
  for (std::size_t rank = 0; rank < chosen.experts.size(); ++rank)
    add_expert(model, model.experts[static_cast<std::size_t>(chosen.experts[rank])], chosen.weights[rank],
               rank == 0, token, sum, row);
  for (std::size_t i = 0; i < columns; ++i) {
    row.bits.push_back(rounded(sum[i]));
    row.bound[i] += std::abs(row.value[i]) * 0x1p-8 + 0x1p-133;
  }
  return row;
}

}  // namespace fourfold::reference
