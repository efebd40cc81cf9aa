// The last kernel of a prompt's DeltaNet: the gated norm, a block to a chunk and value head; and what the
// state keeps of the rows besides the scan's part: keys and the convolution's inputs, which blocks of their
// own write, one to a key head and each of a prompt's last chunks. They are written here because the first
// kernel still reads what they replace.
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
  int chunk;

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

  struct Row {
    Values answer;
    Bits gate;
  };
  // A warp to a row of the value head. While two are computed, the next two are on their way.
  FOURFOLD_DEVICE void norm_rows(int head) const {
    const int column = head * D + kCount * cta.lane(), warp = cta.warp();
    const auto load = [&](int at) {
      const std::int64_t row = place.first_row + at;
      return Row{cta.load(as_floats<kCount>(params.work.answers + row * params.layout.value_dim + column)),
                 cta.load(reinterpret_cast<const Bits*>(mixed_row(place.first_row + at) +
                                                        params.mixed.z_column + column))};
    };
    const Values weight =
        cta.load_stream(as_floats<kCount>(params.weights.norm_weight + kCount * cta.lane()));
    Row rows[2] = {};
#pragma unroll 1
    for (int first = warp - 2 * kFinishWarps; first < place.row_count; first += 2 * kFinishWarps) {
      const Row now[2] = {rows[0], rows[1]};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first + (2 + i) * kFinishWarps;
        if (at < place.row_count) rows[i] = load(at);
      }
      if (first < 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first + i * kFinishWarps;
        if (at >= place.row_count) break;
        const Values open = opened<Cta>(unpacked(now[i].gate), params.weights.gate_is_sigmoid != 0);
        store_bf16(cta, params.out + std::int64_t{place.first_row + at} * params.out_stride + column,
                   gated_norm(cta, now[i].answer, open, weight, params.weights.epsilon));
      }
    }
  }

  // The convolution's inputs of the key head's channels: queries, keys, values. A thread takes eight channels
  // of a row, kInFlight of them before it writes the first: only the blocks of a sequence's end come here,
  // and one load at a time they took five times as long as the norm of the others.
  FOURFOLD_DEVICE void keep_inputs(int key_head) const {
    const SlotState<D> slot = slot_of<D>(params.state, params.layout, place.state_slot);
    const int of_row = (2 + params.layout.values_per_key) * (D / 8);
    const int before = rows_kept_from(place.sequence_end) - (kTaps - 1), first = before - place.position;
    const int end = place.row_count * of_row;
#pragma unroll 1
    for (int i = (first < 0 ? 0 : first) * of_row + cta.thread(); i < end; i += kInFlight * kFinishThreads) {
      device::U32x4 inputs[kInFlight];
#pragma unroll
      for (int b = 0; b < kInFlight; ++b) {
        const int mine = i + b * kFinishThreads < end ? i + b * kFinishThreads : i;
        const int row = device::quotient<Cta>(mine, of_row), at = channel_of(key_head, mine - row * of_row);
        inputs[b] = cta.load(reinterpret_cast<const device::U32x4*>(mixed_row(place.first_row + row) +
                                                                    params.mixed.qkv_column + at));
      }
#pragma unroll
      for (int b = 0; b < kInFlight; ++b) {
        const int mine = Cta::keep(i) + b * kFinishThreads;  // found again: held, they would spill
        if (mine >= end) break;
        const int row = device::quotient<Cta>(mine, of_row), at = channel_of(key_head, mine - row * of_row);
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
  FOURFOLD_DEVICE int channel_of(int key_head, int eight) const {
    const Layout& layout = params.layout;
    const int part = eight / (D / 8), column = 8 * (eight % (D / 8));
    const int first = part < 2 ? part * layout.key_dim + key_head * D
                               : 2 * layout.key_dim + (key_head * layout.values_per_key + part - 2) * D;
    return first + column;
  }

  // Keys as the scan used them: a thread turns eight rows of a column, of all its columns at once.
  FOURFOLD_DEVICE void keep_keys(int key_head) const {
    const SlotState<D> slot = slot_of<D>(params.state, params.layout, place.state_slot);
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
  const int key_heads = params.layout.key_heads, value_heads = params.layout.value_heads;
  const int keeping = kKeptChunks * params.prompt_limit * key_heads;
  const bool keeps = cta.block() < keeping;
  // The tables are older than the grid before this one.
  int chunk = (cta.block() - keeping) / value_heads;
  bool is_chunk = true;
  if (keeps) {
    const int item = cta.block() / key_heads, back = item % kKeptChunks;
    const auto words = cta.load(reinterpret_cast<const device::U32x4*>(params.prompts + item / kKeptChunks));
    const int count = static_cast<int>(words.v[1]);
    is_chunk = back < count;
    chunk = static_cast<int>(words.v[0]) + count - 1 - back;
  }
  ChunkPlace place{};
  if (is_chunk) place = load_chunk(cta, params.chunks + chunk);
  cta.wait_predecessors();
  cta.release_successors();
  if (place.row_count == 0) return;
  const PromptFinish<D, Cta> finish{cta, params, place, chunk};
  if (keeps) {
    finish.keep_inputs(cta.block() % key_heads);
    finish.keep_keys(cta.block() % key_heads);
  } else {
    finish.norm_rows((cta.block() - keeping) % value_heads);
  }
}

}  // namespace fourfold::delta
