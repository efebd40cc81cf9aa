// What attention leaves of every split, made up for the proofs of the kernels that merge it, and what the
// merging gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "kernels/attention/softmax.h"
#include "kernels/verify/attention_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {

// The splits of one row and head in the kernel's order: groups of eight splits dealt to eight warps, whose
// sums are added in order.
inline constexpr int kMergeWarps = 8, kMergeGroup = 8;

struct Combined {
  std::vector<float> bits;
  std::vector<double> value, size;  // size: of the terms added
  int splits = 0;
};

// sink: null, or what the first warp begins its sum of weights with.
inline Combined combined(const std::vector<float>& partial, const std::vector<float>& scale, int first,
                         int stride, int splits, int head_dim, const float* sink) {
  const float sink_log2 = sink != nullptr ? Host::mul(*sink, attention::kLog2E) : attention::kUnseen;
  float largest = sink_log2;
  for (int s = 0; s < splits; ++s) largest = Host::max(largest, scale[2 * (first + s * stride)]);
  const int groups = (splits + kMergeGroup - 1) / kMergeGroup;
  Combined out{.bits = {}, .value = {}, .size = {}, .splits = splits};
  double weights = sink != nullptr ? std::exp2(double{*sink} * std::numbers::log2e - double{largest}) : 0;
  std::vector<double> sum(head_dim), size(head_dim);
  for (int s = 0; s < splits; ++s) {
    const int at = first + s * stride;
    const double w = std::exp2(double{scale[2 * at]} - double{largest});
    weights += w * double{scale[2 * at + 1]};
    for (int d = 0; d < head_dim; ++d) {
      sum[d] += w * double{partial[at * head_dim + d]};
      size[d] += std::abs(w * double{partial[at * head_dim + d]});
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    float total = 0.0f, numerator = 0.0f;
    for (int warp = 0; warp < std::min(kMergeWarps, groups); ++warp) {
      float warp_total = 0.0f, warp_sum = 0.0f;
      if (sink != nullptr && warp == 0)
        warp_total = attention::exp2_weight<Host>(Host::add(sink_log2, -largest));
      for (int group = warp; group < groups; group += kMergeWarps)
        for (int s = group * kMergeGroup; s < std::min(splits, (group + 1) * kMergeGroup); ++s) {
          const int at = first + s * stride;
          const float w = attention::exp2_weight<Host>(Host::add(scale[2 * at], -largest));
          warp_total = Host::fma(w, scale[2 * at + 1], warp_total);
          warp_sum = Host::fma(w, partial[at * head_dim + d], warp_sum);
        }
      total = warp == 0 ? warp_total : Host::add(total, warp_total);
      numerator = warp == 0 ? warp_sum : Host::add(numerator, warp_sum);
    }
    out.bits.push_back(Host::mul(numerator, Host::reciprocal(total)));
    out.value.push_back(sum[d] / weights);
    out.size.push_back(size[d] / weights);
  }
  return out;
}

// exp2's argument is rounded once (2^-24 of at most 64) and the function errs by 2^-22.4, in numerator and
// denominator: 2 * 2^-17.9 (a sink's is rounded twice, of at most 32). Their sums round once a split and once
// a warp, 2^-24 each; quotient 2^-23; the gate 2^-20 more. A hundredth is added for what bf16's rounding
// makes of it.
inline double combine_error(int splits, bool gated) {
  return 1.01 * (2 * std::exp2(-17.9) + 2 * (splits + 8) * 0x1p-24 + 0x1p-23 + (gated ? 0x1p-20 : 0.0));
}

// A vector and its scale for every slot and head.
struct SplitSums {
  std::vector<float> partial, scale;
  const float* device_partial = nullptr;
  const float* device_scale = nullptr;

  SplitSums(StepRun& run, const AttentionShape& shape) {
    std::int64_t slots = 0;
    for (const AttentionPart& part : shape.parts)
      slots += attention::slots_of(part.last(), part.rows, shape.window);
    const int vectors = static_cast<int>(slots) * shape.heads;
    partial = run.normals(static_cast<std::size_t>(vectors * shape.head_dim), 4.0);
    for (int i = 0; i < vectors; ++i) {
      scale.push_back(static_cast<float>(run.random.uniform(-20.0, 20.0)));
      scale.push_back(static_cast<float>(run.random.uniform(1.0, 64.0)));
    }
    device_partial = run.upload(partial, "partial");
    device_scale = run.upload(scale, "partial scale");
  }
  // Of one head of row r of a part.
  Combined merged(const AttentionShape& shape, std::size_t part, int r, int head) const {
    int before = 0;
    for (std::size_t i = 0; i < part; ++i)
      before +=
          static_cast<int>(attention::slots_of(shape.parts[i].last(), shape.parts[i].rows, shape.window));
    const AttentionPart& its = shape.parts[part];
    const int position = its.context + r, stride = its.rows * shape.heads;
    const int skipped =
        attention::first_split(position, shape.window) - attention::first_split(its.context, shape.window);
    return combined(partial, scale, (before + r) * shape.heads + head + skipped * stride, stride,
                    attention::split_count(position, position, shape.window), shape.head_dim,
                    shape.sinks.empty() ? nullptr : &shape.sinks[static_cast<std::size_t>(head)]);
  }
};

}  // namespace fourfold::verify
