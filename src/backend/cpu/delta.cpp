#include "backend/cpu/delta.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fourfold::backend::cpu {
namespace {

static_assert(kConvTapsMax <= kAnchorTokens, "an anchor's position has all its inputs behind it");
constexpr std::int64_t kRowsKept = 2 * kAnchorTokens;
constexpr double kL2Epsilon = 1e-6;

kernel::AlignedBytes room(std::int64_t count, std::size_t element_bytes) {
  return kernel::AlignedBytes(static_cast<std::size_t>(count) * element_bytes);
}

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

DeltaStore::DeltaStore(const DeltaState& sizes, std::int64_t slot_count)
    : sizes_(sizes),
      conv_kept_(kRowsKept + sizes.conv_taps),
      anchors_(room(slot_count * 2 * sizes.value_dim() * sizes.key_head_dim, sizeof(float))),
      keys_(room(slot_count * kRowsKept * sizes.key_dim(), sizeof(float))),
      deltas_(room(slot_count * kRowsKept * sizes.value_dim(), sizeof(float))),
      decays_(room(slot_count * kRowsKept * sizes.value_head_count, sizeof(double))),
      conv_inputs_(room(slot_count * conv_kept_ * sizes.conv_dim(), sizeof(float))) {}

float* DeltaStore::anchor(std::int32_t slot, std::int64_t block, std::int64_t value_head) {
  const std::int64_t head = (2 * slot + block % 2) * sizes_.value_head_count + value_head;
  return reinterpret_cast<float*>(anchors_.data()) + head * sizes_.key_head_dim * sizes_.value_head_dim;
}
float* DeltaStore::key(std::int32_t slot, std::int64_t position, std::int64_t key_head) {
  return reinterpret_cast<float*>(keys_.data()) +
         (slot * kRowsKept + position % kRowsKept) * sizes_.key_dim() + key_head * sizes_.key_head_dim;
}
float* DeltaStore::delta(std::int32_t slot, std::int64_t position, std::int64_t value_head) {
  return reinterpret_cast<float*>(deltas_.data()) +
         (slot * kRowsKept + position % kRowsKept) * sizes_.value_dim() + value_head * sizes_.value_head_dim;
}
double& DeltaStore::decay(std::int32_t slot, std::int64_t position, std::int64_t value_head) {
  return reinterpret_cast<double*>(
      decays_.data())[(slot * kRowsKept + position % kRowsKept) * sizes_.value_head_count + value_head];
}
float* DeltaStore::conv_input(std::int32_t slot, std::int64_t position) {
  return reinterpret_cast<float*>(conv_inputs_.data()) +
         (slot * conv_kept_ + position % conv_kept_) * sizes_.conv_dim();
}

std::int64_t DeltaStore::kept_floats() const {
  return sizes_.value_dim() * sizes_.key_head_dim + (sizes_.conv_taps - 1) * sizes_.conv_dim();
}

void DeltaStore::save(std::int32_t slot, std::int64_t position, float* to) {
  to = std::copy_n(anchor(slot, position / kAnchorTokens, 0), sizes_.value_dim() * sizes_.key_head_dim, to);
  for (std::int64_t at = position - (sizes_.conv_taps - 1); at < position; ++at)
    to = std::copy_n(conv_input(slot, at), sizes_.conv_dim(), to);
}

void DeltaStore::restore(const float* from, std::int32_t slot, std::int64_t position) {
  const std::int64_t state = sizes_.value_dim() * sizes_.key_head_dim;
  std::copy_n(from, state, anchor(slot, position / kAnchorTokens, 0));
  from += state;
  for (std::int64_t at = position - (sizes_.conv_taps - 1); at < position; ++at, from += sizes_.conv_dim())
    std::copy_n(from, sizes_.conv_dim(), conv_input(slot, at));
}

void DeltaStore::convolve(Machine& machine, std::span<const SequenceRows> sequences,
                          std::span<const float> taps, const float* in, float* out) {
  constexpr std::int64_t channels = 512;  // a thread takes at a time
  const std::int64_t width = sizes_.conv_dim();
  const std::int64_t tap_count = sizes_.conv_taps;
  check(tap_count <= kConvTapsMax, "longer ones were refused", tap_count);
  float* tap_rows = tap_rows_.get(tap_count * width);
  for (std::int64_t channel = 0; channel < width; ++channel)
    for (std::int64_t tap = 0; tap < tap_count; ++tap)
      tap_rows[tap * width + channel] = taps[static_cast<std::size_t>(channel * tap_count + tap)];
  const std::int64_t pieces = (width + channels - 1) / channels;
  std::int64_t first_row = 0;
  for (const SequenceRows& rows : sequences) {
    machine.pool.run(pieces, [&](std::int64_t piece) {
      const std::int64_t begin = piece * channels;
      const std::int64_t count = std::min(channels, width - begin);
      for (std::int64_t i = 0; i < rows.row_count; ++i) {
        const std::int64_t position = rows.position + i;
        const float* from = in + (first_row + i) * width + begin;
        std::copy_n(from, count, conv_input(rows.state_slot, position) + begin);
        const float* before[kConvTapsMax];
        for (std::int64_t tap = 0; tap < tap_count; ++tap) {
          const std::int64_t at = position - (tap_count - 1) + tap;
          before[tap] = at < 0 ? nullptr : conv_input(rows.state_slot, at) + begin;
        }
        machine.kernels.convolve(before, tap_rows + begin, width, tap_count, count,
                                 out + (first_row + i) * width + begin);
      }
    });
    first_row += rows.row_count;
  }
}

struct DeltaStore::KeyHead {
  DeltaStore& store;
  const kernel::Kernels& kernels;
  const DeltaValues& values;
  std::int32_t slot;
  std::int64_t index;  // of the key head
  float* query;        // [key_head_dim]
  float* scratch;      // [2, value_head_dim and its padding]

  const DeltaState& sizes() const { return store.sizes_; }
  std::int64_t first_value_head() const { return index * sizes().values_per_key(); }

  // out = in / |in| * scale
  void normalize(const float* in, double scale, float* out) const {
    const std::int64_t count = sizes().key_head_dim;
    const double square = kernels.dot(in, in, count);
    const auto factor = static_cast<float>(scale / std::sqrt(square + kL2Epsilon));
    for (std::int64_t i = 0; i < count; ++i) out[i] = in[i] * factor;
  }

  void run(std::int64_t row, std::int64_t position) const {
    const std::int64_t heads = sizes().values_per_key();
    check(heads <= kValuesPerKeyMax, "more were refused", heads);
    const float* qkv = values.qkv + row * sizes().conv_dim();
    float* key = store.key(slot, position, index);
    normalize(qkv + index * sizes().key_head_dim, 1 / std::sqrt(static_cast<double>(sizes().key_head_dim)),
              query);
    normalize(qkv + sizes().key_dim() + index * sizes().key_head_dim, 1, key);

    const std::int64_t block_begin = position - position % kAnchorTokens;
    float beta[kValuesPerKeyMax];
    float factors[kValuesPerKeyMax * kAnchorTokens];
    for (std::int64_t h = 0; h < heads; ++h) {
      step_decay(row, position, first_value_head() + h);
      beta[h] = static_cast<float>(
          1 / (1 + std::exp(-static_cast<double>(
                       values.beta[row * sizes().value_head_count + first_value_head() + h]))));
      decays_to(position, first_value_head() + h, block_begin, factors + h * kAnchorTokens);
    }
    kernel::DeltaJob job;
    job.key_dim = sizes().key_head_dim;
    job.value_dim = sizes().value_head_dim;
    job.value_head_count = heads;
    job.query = query;
    job.key = key;
    job.values = qkv + 2 * sizes().key_dim() + first_value_head() * sizes().value_head_dim;
    job.beta = beta;
    job.anchor = store.anchor(slot, position / kAnchorTokens, first_value_head());
    job.row_count = position - block_begin;
    job.keys = store.key(slot, block_begin, index);
    job.key_stride = sizes().key_dim();
    job.deltas = store.delta(slot, block_begin, first_value_head());
    job.delta_stride = sizes().value_dim();
    job.decay = factors;
    job.delta = store.delta(slot, position, first_value_head());
    job.out = values.out + row * sizes().value_dim() + first_value_head() * sizes().value_head_dim;
    kernels.delta_rule(job, scratch);
    if (position % kAnchorTokens == kAnchorTokens - 1)
      for (std::int64_t h = 0; h < heads; ++h) move_anchor(position, first_value_head() + h);
  }

  // G of this row.
  void step_decay(std::int64_t row, std::int64_t position, std::int64_t head) const {
    const auto at = static_cast<std::size_t>(head);
    const double logit = values.decay[row * sizes().value_head_count + head];
    const double step = -std::exp(static_cast<double>(values.a_log[at])) *
                        softplus(logit + static_cast<double>(values.dt_bias[at]));
    store.decay(slot, position, head) =
        step + (position % kAnchorTokens == 0 ? 0.0 : store.decay(slot, position - 1, head));
  }

  // e^(G_i - G_j) for the block's rows j before this one, and e^(G_i) in the last place.
  void decays_to(std::int64_t position, std::int64_t head, std::int64_t block_begin, float* out) const {
    const double now = store.decay(slot, position, head);
    const std::int64_t count = position - block_begin;
    for (std::int64_t j = 0; j < count; ++j)
      out[j] = static_cast<float>(now - store.decay(slot, block_begin + j, head));
    for (std::int64_t j = count; j < kAnchorTokens - 1; ++j) out[j] = 0;
    out[kAnchorTokens - 1] = static_cast<float>(now);
    kernels.exponentials(out, kAnchorTokens, out);
  }

  void move_anchor(std::int64_t position, std::int64_t head) const {
    const std::int64_t block = position / kAnchorTokens;
    float factors[kAnchorTokens];
    const double now = store.decay(slot, position, head);
    for (std::int64_t j = 0; j < kAnchorTokens; ++j)
      factors[j] = static_cast<float>(now - store.decay(slot, block * kAnchorTokens + j, head));
    kernels.exponentials(factors, kAnchorTokens, factors);
    float keep[16] = {static_cast<float>(now)};
    kernels.exponentials(keep, 16, keep);
    kernel::MoveAnchorJob job;
    job.key_dim = sizes().key_head_dim;
    job.value_dim = sizes().value_head_dim;
    job.from = store.anchor(slot, block, head);
    job.to = store.anchor(slot, block + 1, head);
    job.from_factor = keep[0];
    job.row_count = kAnchorTokens;
    job.keys = store.key(slot, block * kAnchorTokens, index);
    job.key_stride = sizes().key_dim();
    job.deltas = store.delta(slot, block * kAnchorTokens, head);
    job.delta_stride = sizes().value_dim();
    job.factors = factors;
    kernels.move_anchor(job);
  }
};

void DeltaStore::apply(Machine& machine, std::span<const SequenceRows> sequences, const DeltaValues& values) {
  const std::int64_t heads = sizes_.key_head_count;
  const auto item_count = static_cast<std::int64_t>(sequences.size()) * heads;
  std::int64_t* first_rows = first_rows_.get(static_cast<std::int64_t>(sequences.size()));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    first_rows[i] = row;
    row += sequences[i].row_count;
  }
  const std::int64_t head_floats =
      (sizes_.key_head_dim + 15) / 16 * 16 + 2 * ((sizes_.value_head_dim + 15) / 16 * 16);
  float* memory = head_memory_.get(item_count * head_floats);
  // Rows follow each other through the state; heads and sequences know nothing of each other.
  machine.pool.run(item_count, [&](std::int64_t item) {
    const auto at = static_cast<std::size_t>(item / heads);
    const SequenceRows& rows = sequences[at];
    float* own = memory + item * head_floats;
    const KeyHead head{*this,
                       machine.kernels,
                       values,
                       rows.state_slot,
                       item % heads,
                       own,
                       own + (sizes_.key_head_dim + 15) / 16 * 16};
    if (rows.position == 0)
      std::fill_n(anchor(rows.state_slot, 0, head.first_value_head()),
                  sizes_.values_per_key() * sizes_.key_head_dim * sizes_.value_head_dim, 0.0f);
    for (std::int64_t i = 0; i < rows.row_count; ++i) head.run(first_rows[at] + i, rows.position + i);
  });
}

}  // namespace fourfold::backend::cpu
