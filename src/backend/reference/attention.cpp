#include "backend/reference/attention.h"

#include <algorithm>
#include <limits>

#include "base/bf16.h"
#include "base/e4m3.h"

namespace fourfold::backend::reference {

KvPages::KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens)
    : keys(page_count * page_tokens, cache.columns(), std::numeric_limits<float>::quiet_NaN()),
      values(page_count * page_tokens, cache.is_latent() ? 0 : cache.columns(),
             std::numeric_limits<float>::quiet_NaN()) {}

void write_kv(const KvCache& cache, const PageTable& table, std::int64_t position, std::span<const float> key,
              std::span<const float> value, KvPages& pages) {
  const auto stored = [&](float x) {
    switch (cache.format) {
      case KvFormat::f32: break;
      case KvFormat::bf16: return to_float(to_bf16(x));
      case KvFormat::fp8: return to_float(to_e4m3(x));
    }
    return x;
  };
  const auto store = [&](std::span<const float> from, std::span<float> to) {
    std::transform(from.begin(), from.end(), to.begin(), stored);
  };
  const std::int64_t row = table.row_of(position);
  if (!cache.is_latent()) {
    store(key, pages.keys.row(row));
    store(value, pages.values.row(row));
    return;
  }
  const std::int64_t rest = cache.head_dim - cache.latent_dim;
  for (std::int64_t head = 0; head < cache.kv_head_count; ++head) {
    const auto to = pages.keys.row(row).subspan(head * cache.head_dim, cache.head_dim);
    store(value.subspan(head * cache.latent_dim, cache.latent_dim), to);
    store(key.subspan(head * rest, rest), to.subspan(cache.latent_dim));
  }
}

namespace {

// Positions side by side: each sum is added up in the order that dot() has, without waiting for its
// neighbours.
constexpr std::size_t kTogether = 8;

// Columns of `from` at the rows seen.
struct SeenRows {
  const Rows& from;
  std::span<const std::int64_t> seen;
  std::int64_t column;
  const float* operator[](std::size_t t) const { return from.row(seen[t]).data() + column; }
};

void weigh(std::span<const float> query, const SeenRows& keys, double scale, std::span<double> weight) {
  for (std::size_t t = 0; t < weight.size(); t += kTogether) {
    const float* rows[kTogether];
    double sums[kTogether] = {};
    for (std::size_t j = 0; j < kTogether; ++j) rows[j] = keys[std::min(t + j, weight.size() - 1)];
    for (std::size_t i = 0; i < query.size(); ++i) {
      const double q = query[i];
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kTogether; ++j) sums[j] += q * static_cast<double>(rows[j][i]);
    }
    for (std::size_t j = 0; j < std::min(kTogether, weight.size() - t); ++j) weight[t + j] = scale * sums[j];
  }
}

// Adds weight times the value of each position to sum, one position after the other.
void mix(std::span<const double> weight, const SeenRows& values, std::span<double> sum) {
  std::size_t t = 0;
  for (; t + kTogether <= weight.size(); t += kTogether) {
    const float* rows[kTogether];
    for (std::size_t j = 0; j < kTogether; ++j) rows[j] = values[t + j];
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double value = sum[i];
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kTogether; ++j) value += weight[t + j] * rows[j][i];
      sum[i] = value;
    }
  }
  for (; t < weight.size(); ++t)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight[t] * values[t][i];
}

}  // namespace

void attend(const Attention& op, const KvCache& cache, const PageTable& table, const KvPages& pages,
            std::int64_t position, std::span<const float> query, std::span<float> out,
            std::span<const float> sinks) {
  const std::int64_t width = cache.head_dim, value_width = cache.value_dim();
  const std::int64_t heads_per_kv = op.head_count / cache.kv_head_count;
  const std::int64_t first = op.first_seen(position);
  const Rows& values = cache.is_latent() ? pages.keys : pages.values;
  const double scale = op.scale * op.growth_at(position);
  std::vector<double> weight(position + 1 - first);
  std::vector<std::int64_t> seen(position + 1 - first);  // where each position lies
  for (std::int64_t t = first; t <= position; ++t) seen[t - first] = table.row_of(t);
  std::vector<double> sum(value_width);
  for (std::int64_t head = 0; head < op.head_count; ++head) {
    const std::int64_t kv_column = head / heads_per_kv * width;
    weigh(query.subspan(head * width, width), {pages.keys, seen, kv_column}, scale, weight);
    double largest = *std::max_element(weight.begin(), weight.end());
    if (!sinks.empty()) largest = std::max(largest, static_cast<double>(sinks[head]));
    double total = sinks.empty() ? 0 : std::exp(sinks[head] - largest);
    for (double& w : weight) {
      w = std::exp(w - largest);
      total += w;
    }
    std::fill(sum.begin(), sum.end(), 0.0);
    mix(weight, {values, seen, kv_column}, sum);
    for (std::int64_t i = 0; i < value_width; ++i)
      out[head * value_width + i] = static_cast<float>(sum[i] / total);
  }
}

}  // namespace fourfold::backend::reference
