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

void attend(const Attention& op, const KvCache& cache, const PageTable& table, const KvPages& pages,
            std::int64_t position, std::span<const float> query, std::span<float> out,
            std::span<const float> sinks) {
  const std::int64_t width = cache.head_dim, value_width = cache.value_dim();
  const std::int64_t heads_per_kv = op.head_count / cache.kv_head_count;
  const std::int64_t first = op.first_seen(position);
  const Rows& values = cache.is_latent() ? pages.keys : pages.values;
  const double scale = op.scale * op.growth_at(position);
  std::vector<double> weight(position + 1 - first);
  std::vector<double> sum(value_width);
  for (std::int64_t head = 0; head < op.head_count; ++head) {
    const std::int64_t kv_column = head / heads_per_kv * width;
    for (std::int64_t t = first; t <= position; ++t)
      weight[t - first] = scale * dot(query.subspan(head * width, width),
                                      pages.keys.row(table.row_of(t)).subspan(kv_column, width));
    double largest = *std::max_element(weight.begin(), weight.end());
    if (!sinks.empty()) largest = std::max(largest, static_cast<double>(sinks[head]));
    double total = sinks.empty() ? 0 : std::exp(sinks[head] - largest);
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::int64_t t = first; t <= position; ++t) {
      const double w = std::exp(weight[t - first] - largest);
      const auto value = values.row(table.row_of(t)).subspan(kv_column, value_width);
      total += w;
      for (std::int64_t i = 0; i < value_width; ++i) sum[i] += w * value[i];
    }
    for (std::int64_t i = 0; i < value_width; ++i)
      out[head * value_width + i] = static_cast<float>(sum[i] / total);
  }
}

}  // namespace fourfold::backend::reference
