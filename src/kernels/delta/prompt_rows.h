// The first part of the prompt's first kernel: a chunk's rows of the projections as queries, keys, values and
// gates. A thread takes two channels through eight rows: it reads eleven inputs and keeps the results, so
// that it can write them along rows and along columns.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/lane_math.h"
#include "kernels/delta/tiles.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr int kPrepareThreads = 256;
inline constexpr int kPrepareWarps = kPrepareThreads / 32;
inline constexpr int kValuesPerKeyMax = kPrepareWarps;  // a warp computes the gates of a value head
inline constexpr int kSystemStride = kBlockRows + 8;
inline constexpr int kSolveWarps = 2;  // the others make values meanwhile

constexpr int larger(int a, int b) { return a > b ? a : b; }

// Shared memory of the prompt's first kernel.
template <int D>
struct PrepareStorage {
  static constexpr int kRowStride = D + kTilePad;
  // Queries as rows, then the system I + A of a head; keys as rows, then its inverse.
  alignas(16) unsigned char first[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kSystemStride)];
  alignas(16) unsigned char second[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kBlockRows)];
  std::uint16_t key_columns[D][kBlockStride];
  std::uint16_t value_columns[D][kBlockStride];
  // T scaled for the values, and for what the state knows; apart by half the banks, as both are written at
  // once.
  static constexpr int kInverse = kBlockRows * kBlockStride + 32;
  std::uint16_t inverse[2][kInverse];
  float decay[kValuesPerKeyMax][kBlockRows];  // G
  float beta[kValuesPerKeyMax][kBlockRows];
  alignas(16) float squares[2][kBlockRows];  // sums of halves of a row; then the row's factor

  FOURFOLD_DEVICE std::uint16_t* queries() { return reinterpret_cast<std::uint16_t*>(first); }
  FOURFOLD_DEVICE std::uint16_t* keys() { return reinterpret_cast<std::uint16_t*>(second); }
  FOURFOLD_DEVICE float* system() { return reinterpret_cast<float*>(first); }
  FOURFOLD_DEVICE float* solution() { return reinterpret_cast<float*>(second); }
};

template <int D, class Cta>
struct PromptRows {
  static constexpr int kPairs = D / 2;       // of channels
  static constexpr int kTasks = kPairs * 8;  // pairs, eights of rows
  static constexpr int kTurns = (kTasks + kPrepareThreads - 1) / kPrepareThreads;
  static constexpr int kLanes = kPairs < 32 ? kPairs : 32;  // that share rows
  struct Pair {
    float v[8][2];  // [row][channel]
  };

  Cta cta;
  const PromptParams& params;
  PrepareStorage<D>& storage;
  ChunkPlace place;
  int chunk, key_head;
  SlotState<D> slot;
  int start, end;  // places in the block of the chunk's rows; those before `start` are the state's

  // Between the kernel's parts: addresses are cheap to make and expensive to hold.
  FOURFOLD_DEVICE void forget_addresses() {
    chunk = Cta::keep(chunk);
    key_head = Cta::keep(key_head);
    place.first_row = Cta::keep(place.first_row);
    place.position = Cta::keep(place.position);
    slot.base = Cta::keep(slot.base);
  }

  FOURFOLD_DEVICE int first_value_head() const { return key_head * params.layout.values_per_key; }
  FOURFOLD_DEVICE int block_begin() const { return place.position - start; }
  static FOURFOLD_DEVICE int pair_of(int task) { return task % kPairs; }
  static FOURFOLD_DEVICE int eight_of(int task) { return task / kPairs; }
  FOURFOLD_DEVICE const std::uint16_t* mixed_row(int row) const {
    return static_cast<const std::uint16_t*>(params.mixed.rows) + std::int64_t{row} * params.mixed.stride;
  }

  // Two channels of one input of the convolution; zeros before the sequence and after the chunk.
  FOURFOLD_DEVICE device::F32x2 input(int at, int channel) const {
    if (at < 0 || at >= place.position + place.row_count) return {{0.0f, 0.0f}};
    if (at < place.sequence_position)
      return cta.load(reinterpret_cast<const device::F32x2*>(slot.conv_input(at, channel)));
    const auto bits = cta.load(reinterpret_cast<const std::uint32_t*>(
        mixed_row(place.first_row + at - place.position) + params.mixed.qkv_column + channel));
    return {{low_bf16(bits), high_bf16(bits)}};
  }

  // Eleven of them. Where all are this step's, no decision stands between the loads.
  FOURFOLD_DEVICE void load_inputs(int first, int channel, device::F32x2 (&x)[8 + kTaps - 1]) const {
    constexpr int count = 8 + kTaps - 1;
    if (first < place.sequence_position || first + count > place.position + place.row_count) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const auto value = input(first + i, channel);
#pragma unroll
        for (int j = 0; j < count; ++j)
          if (j == i) x[j] = value;
      }
      return;
    }
    const auto* from =
        mixed_row(place.first_row + first - place.position) + params.mixed.qkv_column + channel;
    std::uint32_t bits[count];
#pragma unroll
    for (int i = 0; i < count; ++i)
      bits[i] =
          cta.load(reinterpret_cast<const std::uint32_t*>(from + std::int64_t{i} * params.mixed.stride));
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = {{low_bf16(bits[i]), high_bf16(bits[i])}};
  }

  // silu of the convolution for places eight * 8.. of the block; zero where the chunk has no row.
  FOURFOLD_DEVICE void convolve_pair(int channel, int eight, Pair& out) const {
    const int first = block_begin() + 8 * eight - (kTaps - 1);
    device::F32x2 x[8 + kTaps - 1];
    load_inputs(first, channel, x);
    Floats<kTaps> taps[2];
#pragma unroll
    for (int c = 0; c < 2; ++c)
      taps[c] = cta.load_stream(as_floats<kTaps>(params.weights.taps + kTaps * (channel + c)));
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int at = 8 * eight + r;
      const bool is_row = at >= start && at < end;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float sum = Cta::mul(taps[c].v[0], x[r].v[c]);
#pragma unroll
        for (int tap = 1; tap < kTaps; ++tap) sum = Cta::fma(taps[c].v[tap], x[r + tap].v[c], sum);
        const float value = Cta::mul(sum, device::sigmoid<Cta>(sum));
        out.v[r][c] = is_row ? value : 0.0f;
      }
    }
  }

  // Rows the state has already: they take the place of what is computed here.
  FOURFOLD_DEVICE void take_old_rows(const float* rows, int eight, int pair, Pair& out) const {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int at = 8 * eight + r;
      if (at >= start) continue;
      const auto old = cta.load(reinterpret_cast<const device::F32x2*>(rows + at * D + 2 * pair));
      out.v[r][0] = old.v[0];
      out.v[r][1] = old.v[1];
    }
  }

  FOURFOLD_DEVICE void sum_squares(int task, const Pair& pair) const {
    float squares[8];
#pragma unroll
    for (int r = 0; r < 8; ++r)
      squares[r] = Cta::fma(pair.v[r][0], pair.v[r][0], Cta::mul(pair.v[r][1], pair.v[r][1]));
    const float sum = eight_sums<kLanes>(cta, squares);
    constexpr int lanes_a_row = kLanes / 8;
    const int lane = cta.lane() % kLanes;
    if (lane % lanes_a_row == 0)
      cta.store_shared(&storage.squares[pair_of(task) / kLanes][8 * eight_of(task) + lane / lanes_a_row],
                       sum);
  }

  // What a row is multiplied with, a thread to a row; in the place of its sum.
  FOURFOLD_DEVICE void make_factors(float scale) const {
    const int row = cta.thread();
    if (row >= kBlockRows) return;
    float square = cta.load_shared(&storage.squares[0][row]);
    if constexpr (kPairs > 32) square = Cta::add(square, cta.load_shared(&storage.squares[1][row]));
    cta.store_shared(&storage.squares[0][row],
                     Cta::mul(Cta::reciprocal(Cta::sqrt(Cta::add(square, kL2Epsilon))), scale));
  }
  FOURFOLD_DEVICE void normalize(int task, Pair& pair) const {
#pragma unroll
    for (int r = 0; r < 8; r += 4) {
      const auto factors = cta.load_shared(as_floats<4>(&storage.squares[0][8 * eight_of(task) + r]));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pair.v[r + i][0] = Cta::mul(pair.v[r + i][0], factors.v[i]);
        pair.v[r + i][1] = Cta::mul(pair.v[r + i][1], factors.v[i]);
      }
    }
  }

  // Two columns of eight rows, 16 bytes each. Half of the lanes begin with the second column: other banks.
  FOURFOLD_DEVICE void store_columns(int task, const Pair& pair, std::uint16_t* shared,
                                     std::uint16_t* global) const {
    device::U32x4 packed[2];
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[c].v[i] = Cta::pack_bf16(pair.v[2 * i][c], pair.v[2 * i + 1][c]);
    const int swap = cta.lane() >> 2 & 1;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      device::U32x4 column;
#pragma unroll
      for (int i = 0; i < 4; ++i) column.v[i] = swap ? packed[1 - c].v[i] : packed[c].v[i];
      const int at = (2 * pair_of(task) + (c ^ swap)) * kBlockStride + 8 * eight_of(task);
      cta.store_shared(reinterpret_cast<device::U32x4*>(shared + at), column);
      if (global) cta.store(reinterpret_cast<device::U32x4*>(global + at), column);
    }
  }
  FOURFOLD_DEVICE void store_rows(int task, const Pair& pair, std::uint16_t* shared,
                                  std::uint16_t* global) const {
    constexpr int stride = PrepareStorage<D>::kRowStride;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int at = (8 * eight_of(task) + r) * stride + 2 * pair_of(task);
      const std::uint32_t packed = Cta::pack_bf16(pair.v[r][0], pair.v[r][1]);
      cta.store_shared(reinterpret_cast<std::uint32_t*>(shared + at), packed);
      if (global) cta.store(reinterpret_cast<std::uint32_t*>(global + at), packed);
    }
  }

  // part 0: queries; 1: keys
  FOURFOLD_DEVICE void make_queries_or_keys(int part) const {
    const int channel = part * params.layout.key_dim + key_head * D;
    const std::int64_t tile = std::int64_t{chunk} * params.layout.key_heads + key_head;
    Pair pairs[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int task = turn * kPrepareThreads + cta.thread();
      if (task >= kTasks) continue;
      convolve_pair(channel + 2 * pair_of(task), eight_of(task), pairs[turn]);
      sum_squares(task, pairs[turn]);
    }
    cta.sync_block();  // the rows' sums
    make_factors(part == 0 ? kQueryScale<D> : 1.0f);
    cta.sync_block();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int task = turn * kPrepareThreads + cta.thread();
      if (task >= kTasks) continue;
      normalize(task, pairs[turn]);
      if (part == 0) {
        store_rows(task, pairs[turn], storage.queries(), params.work.queries + tile * row_tile(D));
      } else {
        take_old_rows(slot.key(key_head, block_begin()), eight_of(task), pair_of(task), pairs[turn]);
        store_rows(task, pairs[turn], storage.keys(), nullptr);
        store_columns(task, pairs[turn], storage.key_columns[0],
                      params.work.key_columns + tile * column_tile(D));
      }
    }
    cta.sync_block();  // the tile is there, the sums may be overwritten
  }

  // Of old rows the deltas: what the system's solution has in their place. By the warps that do not solve it.
  FOURFOLD_DEVICE void make_values(int head) const {
    const int channel = 2 * params.layout.key_dim + head * D;
#pragma unroll 1
    for (int task = cta.thread() - 32 * kSolveWarps; task < kTasks;
         task += kPrepareThreads - 32 * kSolveWarps) {
      Pair pair;
      convolve_pair(channel + 2 * pair_of(task), eight_of(task), pair);
      take_old_rows(slot.delta(head, block_begin()), eight_of(task), pair_of(task), pair);
      store_columns(task, pair, storage.value_columns[0], nullptr);
    }
  }

  // beta and G of a value head, by one warp: lane l has rows l and l + 32. G grows from the last old row's by
  // a sum over the warp in a fixed tree; rows after the chunk add nothing.
  FOURFOLD_DEVICE void make_gates(int which) const {
    const int head = first_value_head() + which, lane = cta.lane();
    const float a_log = cta.load_stream(params.weights.a_log + head);
    const float dt_bias = cta.load_stream(params.weights.dt_bias + head);
    const float before = start > 0 ? cta.load(slot.decay(head, place.position - 1)) : 0.0f;
    float total[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = lane + 32 * half;
      const bool is_row = at >= start && at < end;
      float step = 0.0f, beta = 0.0f;
      if (is_row) {
        const std::uint16_t* row = mixed_row(place.first_row + at - start);
        beta = device::sigmoid<Cta>(bf16_at(row + params.mixed.beta_column + head));
        step = log_decay<Cta>(bf16_at(row + params.mixed.decay_column + head), a_log, dt_bias);
      }
      cta.store_shared(&storage.beta[which][at], beta);
      total[half] = step;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const float other = cta.shuffle(total[half], lane < by ? lane : lane - by);
        if (lane >= by) total[half] = Cta::add(total[half], other);
      }
    }
    total[1] = Cta::add(total[1], cta.shuffle(total[0], 31));
    float* out = params.work.decays + (std::int64_t{chunk} * params.layout.value_heads + head) * kDecayTile;
    const float last = Cta::add(cta.shuffle(total[1], 31), before);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = lane + 32 * half;
      float decay = Cta::add(total[half], before);
      if (at < start) decay = cta.load(slot.decay(head, block_begin() + at));
      cta.store_shared(&storage.decay[which][at], decay);
      cta.store(out + at, decay);
      cta.store(out + kBlockRows + at, device::exp_f32<Cta>(decay));
      cta.store(out + 2 * kBlockRows + at, device::exp_f32<Cta>(Cta::add(last, -decay)));
    }
  }
  FOURFOLD_DEVICE float bf16_at(const std::uint16_t* from) const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(cta.load(from)) << 16);
  }
};

}  // namespace fourfold::delta
