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
#include "kernels/device/quotient.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr int kFinishThreads = 256;
inline constexpr int kFinishWarps = kFinishThreads / 32;
inline constexpr int kInFlight = 4;  // pieces of 16 bytes that a thread has asked for when it writes

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
    const int column = key_head * heads * D + kCount * cta.lane(), warp = cta.warp();
    const Values weight =
        cta.load_stream(as_floats<kCount>(params.weights.norm_weight + kCount * cta.lane()));
#pragma unroll 1
    for (int first = warp; first < count; first += batch * kFinishWarps) {
      Values answer[batch], gate[batch];
      int row[batch], at[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int i = first + b * kFinishWarps < count ? first + b * kFinishWarps : first;
        const int of_chunk = device::quotient<Cta>(i, heads);
        row[b] = place.first_row + of_chunk;
        at[b] = column + (i - of_chunk * heads) * D;
        answer[b] = cta.load(
            as_floats<kCount>(params.work.answers + std::int64_t{row[b]} * params.layout.value_dim + at[b]));
        gate[b] = load_bf16(mixed_row(row[b]) + params.mixed.z_column + at[b]);
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (first + b * kFinishWarps >= count) break;
        const Values out =
            gated_norm(cta, answer[b], opened<Cta>(gate[b], params.weights.gate_is_sigmoid != 0), weight,
                       params.weights.epsilon);
        store_bf16(cta, params.out + std::int64_t{row[b]} * params.out_stride + at[b], out);
      }
    }
  }

  // The convolution's inputs of the key head's channels: queries, keys, values. A thread takes eight channels
  // of a row, kInFlight of them before it writes the first: only the blocks of a sequence's end come here,
  // and one load at a time they took five times as long as the norm of the others.
  FOURFOLD_DEVICE void keep_inputs() const {
    const int of_row = (2 + params.layout.values_per_key) * (D / 8);
    const int before = rows_kept_from(place.sequence_end) - (kTaps - 1), first = before - place.position;
    const int end = place.row_count * of_row;
#pragma unroll 1
    for (int i = (first < 0 ? 0 : first) * of_row + cta.thread(); i < end; i += kInFlight * kFinishThreads) {
      device::U32x4 inputs[kInFlight];
#pragma unroll
      for (int b = 0; b < kInFlight; ++b) {
        const int mine = i + b * kFinishThreads < end ? i + b * kFinishThreads : i;
        const int row = device::quotient<Cta>(mine, of_row), at = channel_of(mine - row * of_row);
        inputs[b] = cta.load(reinterpret_cast<const device::U32x4*>(mixed_row(place.first_row + row) +
                                                                    params.mixed.qkv_column + at));
      }
#pragma unroll
      for (int b = 0; b < kInFlight; ++b) {
        const int mine = Cta::keep(i) + b * kFinishThreads;  // found again: held, they would spill
        if (mine >= end) break;
        const int row = device::quotient<Cta>(mine, of_row), at = channel_of(mine - row * of_row);
        float* to = slot.conv_input(place.position + row, at);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          cta.store(
              reinterpret_cast<device::F32x4*>(to) + half,
              device::F32x4{{low_bf16(inputs[b].v[2 * half]), high_bf16(inputs[b].v[2 * half]),
                             low_bf16(inputs[b].v[2 * half + 1]), high_bf16(inputs[b].v[2 * half + 1])}});
      }
    }
  }
  // The first channel of an eight of the key head's: of queries, of keys, then of its value heads.
  FOURFOLD_DEVICE int channel_of(int eight) const {
    const Layout& layout = params.layout;
    const int part = eight / (D / 8), column = 8 * (eight % (D / 8));
    const int first = part < 2 ? part * layout.key_dim + key_head * D
                               : 2 * layout.key_dim + (key_head * layout.values_per_key + part - 2) * D;
    return first + column;
  }

  // Keys as the scan used them: a thread turns eight rows of a column, of all its columns at once.
  FOURFOLD_DEVICE void keep_keys() const {
    constexpr int turns = 8 * D / kFinishThreads;
    static_assert(turns * kFinishThreads == 8 * D);
    if (place.position < rows_kept_from(place.sequence_end)) return;
    const std::uint16_t* columns =
        params.work.key_columns + (std::int64_t{chunk} * params.layout.key_heads + key_head) * column_tile(D);
    const int start = place_in_block(place.position), end = start + place.row_count;
    float* keys = slot.key(key_head, place.position - start);
    device::U32x4 rows[turns];
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int i = turn * kFinishThreads + cta.thread();
      rows[turn] =
          cta.load(reinterpret_cast<const device::U32x4*>(columns + i % D * kBlockStride + 8 * (i / D)));
    }
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      const int i = turn * kFinishThreads + cta.thread(), key = i % D, eight = i / D;
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const int at = 8 * eight + r;
        if (at < start || at >= end) continue;
        cta.store(keys + at * D + key,
                  r % 2 ? high_bf16(rows[turn].v[r / 2]) : low_bf16(rows[turn].v[r / 2]));
      }
    }
  }
};

template <int D, class Cta>
FOURFOLD_DEVICE void prompt_finish(Cta cta, const PromptParams& params) {
  const int chunk = cta.block() / params.layout.key_heads, key_head = cta.block() % params.layout.key_heads;
  // The table of chunks is older than the grid before this one.
  const ChunkPlace place = load_chunk(cta, params.chunks + chunk);
  cta.wait_predecessors();
  cta.release_successors();
  if (place.row_count == 0) return;
  const PromptFinish<D, Cta> finish{
      cta, params, place, chunk, key_head, slot_of<D>(params.state, params.layout, place.state_slot)};
  finish.keep_inputs();
  finish.keep_keys();
  finish.norm_rows();
}

}  // namespace fourfold::delta
