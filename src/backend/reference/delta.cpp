#include "backend/reference/delta.h"

#include <algorithm>

namespace fourfold::backend::reference {
namespace {

constexpr std::int64_t kRowsKept = 2 * kAnchorTokens;
constexpr double kL2Epsilon = 1e-6;  // under the root, beside the sum of squares

// out = in / |in| * scale.
void normalize(std::span<const float> in, double scale, std::span<float> out) {
  const double factor = scale / std::sqrt(dot(in, in) + kL2Epsilon);
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = static_cast<float>(in[i] * factor);
}

// One value head of one row.
struct HeadRow {
  const DeltaState& sizes;
  DeltaMemory& memory;
  std::int64_t head;
  std::int64_t position;

  std::int64_t block_begin() const { return position - position % kAnchorTokens; }
  std::span<float> anchor_row(std::int64_t block, std::int64_t key) const {
    const std::int64_t width = sizes.value_head_dim;
    return memory.anchors.row(block % 2).subspan((head * sizes.key_head_dim + key) * width, width);
  }
  std::span<float> key(std::int64_t at) const {
    const std::int64_t key_head = head / sizes.values_per_key();
    return memory.keys.row(at % kRowsKept).subspan(key_head * sizes.key_head_dim, sizes.key_head_dim);
  }
  std::span<float> delta(std::int64_t at) const {
    return memory.deltas.row(at % kRowsKept).subspan(head * sizes.value_head_dim, sizes.value_head_dim);
  }
  double& decay(std::int64_t at) const {
    return memory.decay[at % kRowsKept * sizes.value_head_count + head];
  }

  // e^{G_i} S0^T x + sum over j in [block begin, end) of e^{G_i - G_j} (k_j . x) d_j: what the state answers.
  std::vector<double> read(std::span<const float> x, std::int64_t end) const {
    std::vector<double> sum(sizes.value_head_dim);
    const auto add = [&](double factor, std::span<const float> row) {
      for (std::size_t v = 0; v < sum.size(); ++v) sum[v] += factor * row[v];
    };
    const double now = decay(position), kept = std::exp(now);
    for (std::int64_t k = 0; k < sizes.key_head_dim; ++k)
      add(kept * x[k], anchor_row(position / kAnchorTokens, k));
    for (std::int64_t j = block_begin(); j < end; ++j)
      add(std::exp(now - decay(j)) * dot(key(j), x), delta(j));
    return sum;
  }

  void move_anchor() const {
    const std::int64_t block = position / kAnchorTokens;
    const double now = decay(position), kept = std::exp(now);
    std::vector<double> sum(sizes.value_head_dim), since;
    for (std::int64_t j = block_begin(); j <= position; ++j) since.push_back(std::exp(now - decay(j)));
    for (std::int64_t k = 0; k < sizes.key_head_dim; ++k) {
      for (std::size_t v = 0; v < sum.size(); ++v) sum[v] = kept * anchor_row(block, k)[v];
      for (std::int64_t j = block_begin(); j <= position; ++j) {
        const double factor = since[j - block_begin()] * key(j)[k];
        const std::span<const float> row = delta(j);
        for (std::size_t v = 0; v < sum.size(); ++v) sum[v] += factor * row[v];
      }
      for (std::size_t v = 0; v < sum.size(); ++v) anchor_row(block + 1, k)[v] = static_cast<float>(sum[v]);
    }
  }
};

}  // namespace

DeltaMemory::DeltaMemory(const DeltaState& sizes)
    : anchors(2, sizes.value_dim() * sizes.key_head_dim),
      keys(kRowsKept, sizes.key_dim()),
      deltas(kRowsKept, sizes.value_dim()),
      decay(kRowsKept * sizes.value_head_count),
      conv_inputs(kRowsKept + sizes.conv_taps, sizes.conv_dim()) {}

std::int64_t kept_floats(const DeltaState& sizes) {
  return sizes.value_dim() * sizes.key_head_dim + (sizes.conv_taps - 1) * sizes.conv_dim();
}

void save_state(const DeltaState& sizes, DeltaMemory& memory, std::int64_t position, float* to) {
  to = std::ranges::copy(memory.anchors.row(position / kAnchorTokens % 2), to).out;
  for (std::int64_t at = position - (sizes.conv_taps - 1); at < position; ++at)
    to = std::ranges::copy(memory.conv_inputs.row(at % memory.conv_inputs.count()), to).out;
}

void restore_state(const DeltaState& sizes, const float* from, std::int64_t position, DeltaMemory& memory) {
  const auto take = [&](std::span<float> row) {
    std::copy_n(from, row.size(), row.begin());
    from += row.size();
  };
  take(memory.anchors.row(position / kAnchorTokens % 2));
  for (std::int64_t at = position - (sizes.conv_taps - 1); at < position; ++at)
    take(memory.conv_inputs.row(at % memory.conv_inputs.count()));
}

void causal_conv(const DeltaState& sizes, std::int64_t position, std::span<const float> taps,
                 std::span<const float> in, DeltaMemory& memory, std::span<float> out) {
  const std::int64_t kept = memory.conv_inputs.count();
  std::copy(in.begin(), in.end(), memory.conv_inputs.row(position % kept).begin());
  for (std::int64_t channel = 0; channel < sizes.conv_dim(); ++channel) {
    double sum = 0;
    for (std::int64_t tap = 0; tap < sizes.conv_taps; ++tap) {
      const std::int64_t at = position - (sizes.conv_taps - 1) + tap;
      if (at < 0) continue;  // zeros before the sequence
      sum += static_cast<double>(taps[channel * sizes.conv_taps + tap]) *
             static_cast<double>(memory.conv_inputs.row(at % kept)[channel]);
    }
    out[channel] = static_cast<float>(silu(sum));
  }
}

void delta_rule(const DeltaState& sizes, std::int64_t position, const DeltaInput& input, DeltaMemory& memory,
                std::span<float> out) {
  if (position == 0) std::ranges::fill(memory.anchors.row(0), 0.0f);
  const std::int64_t key_width = sizes.key_head_dim;
  const std::int64_t value_width = sizes.value_head_dim;
  std::vector<float> queries(sizes.key_dim());
  for (std::int64_t head = 0; head < sizes.key_head_count; ++head) {
    const std::int64_t begin = head * key_width;
    normalize(input.qkv.subspan(begin, key_width), 1 / std::sqrt(static_cast<double>(key_width)),
              std::span(queries).subspan(begin, key_width));
    normalize(input.qkv.subspan(sizes.key_dim() + begin, key_width), 1,
              memory.keys.row(position % kRowsKept).subspan(begin, key_width));
  }
  for (std::int64_t head = 0; head < sizes.value_head_count; ++head) {
    const HeadRow row{sizes, memory, head, position};
    const double log_decay = -std::exp(static_cast<double>(input.a_log[head])) *
                             softplus(static_cast<double>(input.decay[head]) + input.dt_bias[head]);
    row.decay(position) = log_decay + (position % kAnchorTokens == 0 ? 0.0 : row.decay(position - 1));

    const std::vector<double> known = row.read(row.key(position), position);
    const auto value = input.qkv.subspan(2 * sizes.key_dim() + head * value_width, value_width);
    for (std::int64_t v = 0; v < value_width; ++v)
      row.delta(position)[v] = static_cast<float>(sigmoid(input.beta[head]) * (value[v] - known[v]));

    const auto query =
        std::span<const float>(queries).subspan(head / sizes.values_per_key() * key_width, key_width);
    const std::vector<double> answer = row.read(query, position + 1);
    for (std::int64_t v = 0; v < value_width; ++v)
      out[head * value_width + v] = static_cast<float>(answer[v]);
    if (position % kAnchorTokens == kAnchorTokens - 1) row.move_anchor();
  }
}

}  // namespace fourfold::backend::reference
