// The anchored state of one gated DeltaNet layer in device memory: backend/reference/delta.h has the meaning.
// Everything is kept by absolute position, so a sequence goes back by simply going on from there:
//
//   anchors  f32 [2][value heads][key][value]   S at the start of block b of 64 positions, in place b % 2
//   keys     f32 [key heads][128][key]          normalised; position p in place p % 128
//   deltas   f32 [value heads][128][value]
//   decays   f32 [value heads][128]             G: the sum of the log decays since the block's start
//   conv     f32 [132][conv channels]           the convolution's inputs; position p in place p % 132
//
// A head's rows lie together: those of a block are one bulk copy. The anchor of block 0 is zero and neither
// written nor read. Nothing has to be cleared: what a sequence reads, it has written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/step/step_tables.h"

namespace fourfold::delta {

inline constexpr int kBlockRows = step::kPageTokens;  // rows between two anchors
inline constexpr int kRowsKept = 2 * kBlockRows;
inline constexpr int kTaps = 4;
inline constexpr int kConvKept =
    kRowsKept + kTaps;  // the oldest row that may be resumed at has rows before it

// Position modulo a ring; positions are never negative.
constexpr int wrapped(int position, unsigned places) {
  return static_cast<int>(static_cast<unsigned>(position) % places);
}
constexpr int place_in_block(int position) { return wrapped(position, kBlockRows); }

// Sizes of a layer and where the parts of a slot begin, in floats. Kernels read it as an argument: one
// multiplication less everywhere. Key and value heads have the same dimension.
struct Layout {
  std::int32_t key_heads;
  std::int32_t value_heads;  // value head h belongs to key head h / values_per_key
  std::int32_t head_dim;
  std::int32_t values_per_key;
  std::int32_t key_dim;
  std::int32_t value_dim;
  std::int32_t conv_dim;
  std::int32_t keys_at;  // the anchors begin at 0
  std::int32_t deltas_at;
  std::int32_t decays_at;
  std::int32_t conv_at;
  std::int32_t slot_floats;

  constexpr std::int64_t slot_bytes() const { return std::int64_t{slot_floats} * 4; }
};

// Parts begin at multiples of 128 bytes, slots at multiples of 256.
constexpr Layout layout_of(int key_heads, int value_heads, int head_dim) {
  Layout layout{};
  layout.key_heads = key_heads;
  layout.value_heads = value_heads;
  layout.head_dim = head_dim;
  layout.values_per_key = value_heads / key_heads;
  layout.key_dim = key_heads * head_dim;
  layout.value_dim = value_heads * head_dim;
  layout.conv_dim = 2 * layout.key_dim + layout.value_dim;
  layout.keys_at = 2 * layout.value_dim * head_dim;
  layout.deltas_at = layout.keys_at + kRowsKept * layout.key_dim;
  layout.decays_at = layout.deltas_at + kRowsKept * layout.value_dim;
  layout.conv_at = layout.decays_at + kRowsKept * value_heads;
  layout.slot_floats = (layout.conv_at + kConvKept * layout.conv_dim + 63) / 64 * 64;
  return layout;
}

// One slot of a layer whose heads have D columns. Positions are absolute.
template <int D>
struct SlotState {
  float* base;
  const Layout& layout;

  constexpr float* anchor(int block, int value_head) const {
    return base + ((block & 1) * layout.value_heads + value_head) * (D * D);
  }
  constexpr float* key(int key_head, int position) const {
    return base + layout.keys_at + (key_head * kRowsKept + wrapped(position, kRowsKept)) * D;
  }
  constexpr float* delta(int value_head, int position) const {
    return base + layout.deltas_at + (value_head * kRowsKept + wrapped(position, kRowsKept)) * D;
  }
  constexpr float* decay(int value_head, int position) const {
    return base + layout.decays_at + value_head * kRowsKept + wrapped(position, kRowsKept);
  }
  constexpr float* conv_input(int position, int channel) const {
    return base + layout.conv_at + wrapped(position, kConvKept) * layout.conv_dim + channel;
  }
};

// The state of a layer: slots one after another.
template <int D>
constexpr SlotState<D> slot_of(float* layer, const Layout& layout, int slot) {
  return {layer + std::int64_t{slot} * layout.slot_floats, layout};
}

}  // namespace fourfold::delta
