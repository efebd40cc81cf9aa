// The last kernel of a prompt's DeltaNet: the gated norm, and what the state keeps of the rows besides the
// scan's part: keys and the convolution's inputs. They are written here because the first kernel still reads
// what they replace. A block to a chunk and key head.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/lane_math.h"
#include "kernels/delta/tiles.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr int kFinishThreads = 256;
inline constexpr int kFinishWarps = kFinishThreads / 32;

template <int D, class Cta>
struct PromptFinish {
  static constexpr int kCount = D / 32;
  using Values = Floats<kCount>;
  Cta cta;
  const PromptParams& params;
  ChunkPlace place;
  int chunk, key_head;
  SlotState<D> slot;

  FOURFOLD_DEVICE const std::uint16_t* mixed_row(int row) const {
    return static_cast<const std::uint16_t*>(params.mixed.rows) + std::int64_t{row} * params.mixed.stride;
  }
  FOURFOLD_DEVICE Values load_bf16(const std::uint16_t* from) const {
    Values out;
    if constexpr (kCount == 1) {
      out.v[0] = std::bit_cast<float>(static_cast<std::uint32_t>(cta.load(from)) << 16);
    } else {
      struct alignas(2 * kCount) Pairs {
        std::uint32_t v[kCount / 2];
      };
      const auto pairs = cta.load(reinterpret_cast<const Pairs*>(from));
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        out.v[i] = i % 2 ? high_bf16(pairs.v[i / 2]) : low_bf16(pairs.v[i / 2]);
    }
    return out;
  }

  // A warp to a row of a value head; four rows are in flight.
  FOURFOLD_DEVICE void norm_rows() const {
    constexpr int batch = 4;
    const int heads = params.layout.values_per_key, count = place.row_count * heads;
    const int column = kCount * cta.lane(), warp = cta.warp();
    const Values weight = cta.load_stream(as_floats<kCount>(params.weights.norm_weight + column));
#pragma unroll 1
    for (int first = warp; first < count; first += batch * kFinishWarps) {
      Values answer[batch], gate[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int i = first + b * kFinishWarps < count ? first + b * kFinishWarps : first;
        const int row = place.first_row + i / heads, at = (key_head * heads + i % heads) * D + column;
        answer[b] = cta.load(
            as_floats<kCount>(params.work.answers + std::int64_t{row} * params.layout.value_dim + at));
        gate[b] = load_bf16(mixed_row(row) + params.mixed.z_column + at);
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int i = first + b * kFinishWarps;
        if (i >= count) break;
        const Values out =
            gated_norm(cta, answer[b], opened<Cta>(gate[b], params.weights.gate_is_sigmoid != 0), weight,
                       params.weights.epsilon);
        const int row = place.first_row + i / heads, at = (key_head * heads + i % heads) * D + column;
        store_bf16(cta, params.out + std::int64_t{row} * params.out_stride + at, out);
      }
    }
  }

  // `count` channels of the convolution's inputs, a warp to 32 of a row.
  FOURFOLD_DEVICE void keep_inputs(int channel, int count) const {
    const int before = rows_kept_from(place.sequence_end) - (kTaps - 1), first = before - place.position;
    const int pieces = count / 32;
#pragma unroll 1
    for (int i = (first < 0 ? 0 : first) * pieces + cta.warp(); i < place.row_count * pieces;
         i += kFinishWarps) {
      const int row = i / pieces, at = channel + 32 * (i % pieces) + cta.lane();
      const auto bits = cta.load(mixed_row(place.first_row + row) + params.mixed.qkv_column + at);
      cta.store(slot.conv_input(place.position + row, at),
                std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
    }
  }

  // Keys as the scan used them: a thread turns eight rows of a column.
  FOURFOLD_DEVICE void keep_keys() const {
    if (place.position < rows_kept_from(place.sequence_end)) return;
    const std::uint16_t* columns =
        params.work.key_columns + (std::int64_t{chunk} * params.layout.key_heads + key_head) * column_tile(D);
    const int start = place_in_block(place.position), end = start + place.row_count;
    float* keys = slot.key(key_head, place.position - start);
#pragma unroll 1
    for (int i = cta.thread(); i < 8 * D; i += kFinishThreads) {
      const int key = i % D, eight = i / D;
      const auto rows =
          cta.load(reinterpret_cast<const device::U32x4*>(columns + key * kBlockStride + 8 * eight));
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const int at = 8 * eight + r;
        if (at < start || at >= end) continue;
        cta.store(keys + at * D + key, r % 2 ? high_bf16(rows.v[r / 2]) : low_bf16(rows.v[r / 2]));
      }
    }
  }
};

template <int D, class Cta>
FOURFOLD_DEVICE void prompt_finish(Cta cta, const PromptParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int chunk = cta.block() / params.layout.key_heads, key_head = cta.block() % params.layout.key_heads;
  const ChunkPlace place = load_chunk(cta, params.chunks + chunk);
  if (place.row_count == 0) return;
  const PromptFinish<D, Cta> finish{
      cta, params, place, chunk, key_head, slot_of<D>(params.state, params.layout, place.state_slot)};
  finish.norm_rows();
  finish.keep_keys();
  const int key_dim = params.layout.key_dim, heads = params.layout.values_per_key;
  finish.keep_inputs(key_head * D, D);
  finish.keep_inputs(key_dim + key_head * D, D);
  finish.keep_inputs(2 * key_dim + key_head * heads * D, heads * D);
}

}  // namespace fourfold::delta
