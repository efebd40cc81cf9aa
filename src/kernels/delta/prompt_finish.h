// The last kernel of a prompt's DeltaNet: the gated norm, and what the state keeps of the rows besides the
// scan's part: keys and the convolution's inputs. They are written here because the first kernel still reads
// what they replace. A block to a chunk and key head.
#pragma once

#include <cstdint>
#include <type_traits>

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
  // A lane's part of a row in bf16, as it was loaded.
  using Bits = std::conditional_t<kCount == 1, std::uint16_t,
                                  std::conditional_t<kCount == 2, std::uint32_t, device::U32x2>>;
  static FOURFOLD_DEVICE Values unpacked(const Bits& bits) {
    if constexpr (kCount == 1)
      return {{low_bf16(bits)}};
    else if constexpr (kCount == 2)
      return {{low_bf16(bits), high_bf16(bits)}};
    else
      return {{low_bf16(bits.v[0]), high_bf16(bits.v[0]), low_bf16(bits.v[1]), high_bf16(bits.v[1])}};
  }

  // A warp's rows, head after head.
  struct Walk {
    int row, head;
  };
  FOURFOLD_DEVICE Walk next(Walk at, int warp) const {
    at.row += kFinishWarps;
    return at.row < place.row_count ? at : Walk{warp, at.head + 1};
  }
  struct Row {
    Values answer;
    Bits gate;
  };
  FOURFOLD_DEVICE int column(const Walk& at) const {
    return (key_head * params.layout.values_per_key + at.head) * D + kCount * cta.lane();
  }
  FOURFOLD_DEVICE Row load_row(const Walk& at) const {
    const int row = place.first_row + at.row;
    return {cta.load(as_floats<kCount>(params.work.answers + std::int64_t{row} * params.layout.value_dim +
                                       column(at))),
            cta.load(reinterpret_cast<const Bits*>(mixed_row(row) + params.mixed.z_column + column(at)))};
  }
  // A warp to a row of a value head. While two are computed, the next two are on their way.
  FOURFOLD_DEVICE void norm_rows() const {
    const int heads = params.layout.values_per_key, warp = cta.warp();
    if (warp >= place.row_count) return;
    const Values weight =
        cta.load_stream(as_floats<kCount>(params.weights.norm_weight + kCount * cta.lane()));
    Walk at[2] = {{warp, 0}, next({warp, 0}, warp)};
    Row rows[2];
    rows[0] = load_row(at[0]);
    if (at[1].head < heads) rows[1] = load_row(at[1]);
#pragma unroll 1
    while (at[0].head < heads) {
      const Walk then[2] = {next(at[1], warp), next(next(at[1], warp), warp)};
      const Row now[2] = {rows[0], rows[1]};
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (then[i].head < heads) rows[i] = load_row(then[i]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (at[i].head < heads) {
          const Values open = opened<Cta>(unpacked(now[i].gate), params.weights.gate_is_sigmoid != 0);
          store_bf16(
              cta, params.out + std::int64_t{place.first_row + at[i].row} * params.out_stride + column(at[i]),
              gated_norm(cta, now[i].answer, open, weight, params.weights.epsilon));
        }
        at[i] = then[i];
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
