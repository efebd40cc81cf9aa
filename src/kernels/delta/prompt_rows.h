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
inline constexpr int kSolutionStride = kBlockRows + 2;  // rows eight apart lie in other banks
inline constexpr int kSolveWarps = 4;                   // the others make values meanwhile

constexpr int larger(int a, int b) { return a > b ? a : b; }

// Shared memory of the prompt's first kernel.
template <int D>
struct PrepareStorage {
  static constexpr int kRowStride = D + kTilePad;
  // Queries as rows, then the system I + A of a head; keys as rows, then its inverse.
  alignas(16) unsigned char first[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kSystemStride)];
  alignas(16) unsigned char second[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kSolutionStride)];
  std::uint16_t key_columns[D][kBlockStride];
  // T scaled for the values, and for what the state knows; apart by half the banks, as both are written at
  // once.
  static constexpr int kInverse = kBlockRows * kBlockStride + 32;
  // Before the values and the inverses of heads: what threads keep of a part's rows until their norms are
  // known.
  static constexpr int kKept = larger(D * kBlockRows / (2 * kPrepareThreads), 8);  // pairs a thread
  alignas(16) unsigned char third[larger(2 * (D * kBlockStride + 2 * kInverse), 8 * kKept * kPrepareThreads)];
  float decay[kValuesPerKeyMax][kBlockRows];  // G
  float beta[kValuesPerKeyMax][kBlockRows];
  alignas(16) float squares[2][2][kBlockRows];  // of queries, keys: sums of halves of a row; then its factor

  FOURFOLD_DEVICE std::uint16_t* queries() { return reinterpret_cast<std::uint16_t*>(first); }
  FOURFOLD_DEVICE std::uint16_t* keys() { return reinterpret_cast<std::uint16_t*>(second); }
  FOURFOLD_DEVICE float* system() { return reinterpret_cast<float*>(first); }
  FOURFOLD_DEVICE float* solution() { return reinterpret_cast<float*>(second); }
  FOURFOLD_DEVICE device::F32x4* kept() { return reinterpret_cast<device::F32x4*>(third); }
  FOURFOLD_DEVICE std::uint16_t* value_columns() { return reinterpret_cast<std::uint16_t*>(third); }
  FOURFOLD_DEVICE std::uint16_t* inverse(int which) {
    return value_columns() + D * kBlockStride + which * kInverse;
  }
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
  static FOURFOLD_DEVICE int pair_of(int task) { return wrapped(task, kPairs); }
  static FOURFOLD_DEVICE int eight_of(int task) {
    return static_cast<int>(static_cast<unsigned>(task) / static_cast<unsigned>(kPairs));
  }
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

  // Eleven of them make eight rows. Those of this step are asked for before they are needed, all at once;
  // others count as zero.
  static constexpr int kInputs = 8 + kTaps - 1;
  struct Asked {
    std::uint32_t bits[kInputs];
  };
  FOURFOLD_DEVICE int first_input(int eight) const { return block_begin() + 8 * eight - (kTaps - 1); }
  FOURFOLD_DEVICE void ask_inputs(int channel, int eight, Asked& asked) const {
    const int first = first_input(eight);
    const auto* from =
        mixed_row(place.first_row + first - place.position) + params.mixed.qkv_column + channel;
    const auto load = [&](int i) {
      return cta.load(reinterpret_cast<const std::uint32_t*>(from + std::int64_t{i} * params.mixed.stride));
    };
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      const int at = first + i;
      asked.bits[i] = 0;
      if (at >= place.sequence_position && at < place.position + place.row_count) asked.bits[i] = load(i);
    }
  }

  // The taps of a pair of channels.
  struct Taps {
    Floats<kTaps> of[2];
  };
  FOURFOLD_DEVICE Taps load_taps(int channel) const {
    Taps taps;
#pragma unroll
    for (int c = 0; c < 2; ++c)
      taps.of[c] = cta.load(as_floats<kTaps>(params.weights.taps + kTaps * (channel + c)));
    return taps;
  }

  // silu of the convolution for places eight * 8.. of the block; zero where the chunk has no row.
  FOURFOLD_DEVICE void convolve_pair(int channel, int eight, const Asked& asked, const Taps& taps,
                                     Pair& out) const {
    const int first = first_input(eight);
    if (first < place.sequence_position && place.sequence_position > 0) {
      convolve_after_state(channel, eight, taps, out);
      return;
    }
    device::F32x2 x[kInputs];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) x[i] = {{low_bf16(asked.bits[i]), high_bf16(asked.bits[i])}};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const device::F32x2 row = convolved(x[r], x[r + 1], x[r + 2], x[r + 3], taps);
      out.v[r][0] = row.v[0];
      out.v[r][1] = row.v[1];
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      if (is_row(8 * eight + r)) continue;
      out.v[r][0] = out.v[r][1] = 0.0f;
    }
  }
  FOURFOLD_DEVICE bool is_row(int at) const { return at >= start && at < end; }
  // The same where some of the inputs are the state's: one after another, in little code.
  FOURFOLD_DEVICE void convolve_after_state(int channel, int eight, const Taps& taps, Pair& out) const {
    device::F32x2 x[3] = {};
#pragma unroll 1
    for (int i = 0; i < kInputs; ++i) {
      const device::F32x2 last = input(first_input(eight) + i, channel);
      const int r = i - (kTaps - 1);
      device::F32x2 row = convolved(x[0], x[1], x[2], last, taps);
      if (!is_row(8 * eight + r)) row = {{0.0f, 0.0f}};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (j != r) continue;
        out.v[j][0] = row.v[0];
        out.v[j][1] = row.v[1];
      }
      x[0] = x[1];
      x[1] = x[2];
      x[2] = last;
    }
  }
  static FOURFOLD_DEVICE device::F32x2 convolved(const device::F32x2& a, const device::F32x2& b,
                                                 const device::F32x2& c, const device::F32x2& d,
                                                 const Taps& taps) {
    static_assert(kTaps == 4);
    device::F32x2 out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto& tap = taps.of[i].v;
      float sum = Cta::mul(tap[0], a.v[i]);
      sum = Cta::fma(tap[1], b.v[i], sum);
      sum = Cta::fma(tap[2], c.v[i], sum);
      sum = Cta::fma(tap[3], d.v[i], sum);
      out.v[i] = Cta::mul(sum, device::sigmoid<Cta>(sum));
    }
    return out;
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

  FOURFOLD_DEVICE void sum_squares(int part, int task, const Pair& pair) const {
    float squares[8];
#pragma unroll
    for (int r = 0; r < 8; ++r)
      squares[r] = Cta::fma(pair.v[r][0], pair.v[r][0], Cta::mul(pair.v[r][1], pair.v[r][1]));
    const float sum = eight_sums<kLanes>(cta, squares);
    constexpr int lanes_a_row = kLanes / 8;
    const int lane = cta.lane() % kLanes;
    if (lane % lanes_a_row == 0)
      cta.store_shared(
          &storage.squares[part][pair_of(task) / kLanes][8 * eight_of(task) + lane / lanes_a_row], sum);
  }

  // What a row is multiplied with, a thread to a row; in the place of its sum.
  FOURFOLD_DEVICE void make_factors(int part) const {
    const int row = cta.thread();
    if (row >= kBlockRows) return;
    float square = cta.load_shared(&storage.squares[part][0][row]);
    if constexpr (kPairs > 32) square = Cta::add(square, cta.load_shared(&storage.squares[part][1][row]));
    cta.store_shared(&storage.squares[part][0][row],
                     Cta::mul(Cta::reciprocal(Cta::sqrt(Cta::add(square, kL2Epsilon))),
                              part == 0 ? kQueryScale<D> : 1.0f));
  }
  FOURFOLD_DEVICE void normalize(int part, int task, Pair& pair) const {
#pragma unroll
    for (int r = 0; r < 8; r += 4) {
      const auto factors = cta.load_shared(as_floats<4>(&storage.squares[part][0][8 * eight_of(task) + r]));
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

  // Queries are part 0, keys part 1. A thread has the same pair of channels in every turn.
  static_assert(kPrepareThreads % kPairs == 0);
  static FOURFOLD_DEVICE bool is_task(int task) { return kTasks % kPrepareThreads == 0 || task < kTasks; }
  FOURFOLD_DEVICE int part_channel(int part) const {
    return part * params.layout.key_dim + key_head * D + 2 * pair_of(cta.thread());
  }
  // A turn's results wait in shared memory, each thread's its own.
  FOURFOLD_DEVICE device::F32x4* kept(int turn, int two) const {
    return storage.kept() + (4 * turn + two) * kPrepareThreads + cta.thread();
  }
  FOURFOLD_DEVICE void keep_pair(int turn, const Pair& pair) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      cta.store_shared(kept(turn, i), device::F32x4{{pair.v[2 * i][0], pair.v[2 * i][1], pair.v[2 * i + 1][0],
                                                     pair.v[2 * i + 1][1]}});
  }
  FOURFOLD_DEVICE Pair kept_pair(int turn) const {
    Pair pair;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto two = cta.load_shared(kept(turn, i));
      pair.v[2 * i][0] = two.v[0];
      pair.v[2 * i][1] = two.v[1];
      pair.v[2 * i + 1][0] = two.v[2];
      pair.v[2 * i + 1][1] = two.v[3];
    }
    return pair;
  }
  FOURFOLD_DEVICE void store_part(int part) const {
    const std::int64_t tile = std::int64_t{chunk} * params.layout.key_heads + key_head;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      const int task = turn * kPrepareThreads + cta.thread();
      if (!is_task(task)) break;
      Pair pair = kept_pair(turn);
      normalize(part, task, pair);
      if (part == 0) {
        store_rows(task, pair, storage.queries(), params.work.queries + tile * row_tile(D));
      } else {
        take_old_rows(slot.key(key_head, block_begin()), eight_of(task), pair_of(task), pair);
        store_rows(task, pair, storage.keys(), nullptr);
        store_columns(task, pair, storage.key_columns[0], params.work.key_columns + tile * column_tile(D));
      }
    }
  }

  // Queries, keys and the gates of all value heads. Loops, not straight code: a block runs it once, and would
  // wait for its instructions. The inputs of a turn are on their way while the one before it is computed.
  FOURFOLD_DEVICE void make_rows() const {
    Asked asked{};
    Taps taps{};
#pragma unroll 1
    for (int i = -1; i < 2 * kTurns; ++i) {
      const Asked own = asked;
      const Taps own_taps = taps;
      if (const int next = i + 1; next < 2 * kTurns) {
        const int task = next % kTurns * kPrepareThreads + cta.thread();
        taps = load_taps(part_channel(next / kTurns));
        if (is_task(task)) ask_inputs(part_channel(next / kTurns), eight_of(task), asked);
      }
      if (i < 0) {
        make_logits();
        continue;
      }
      const int part = i / kTurns, turn = i % kTurns, task = turn * kPrepareThreads + cta.thread();
      if (is_task(task)) {
        Pair pair;
        convolve_pair(part_channel(part), eight_of(task), own, own_taps, pair);
        sum_squares(part, task, pair);
        keep_pair(turn, pair);
      }
      if (turn == kTurns - 1) finish_part(part);
    }
    cta.sync_block();  // the tiles are there
  }
  FOURFOLD_DEVICE void finish_part(int part) const {
    cta.sync_block();  // the rows' sums, and the logits
    make_factors(part);
    const int which = kPrepareWarps - 1 - cta.warp();  // the last warps: the first ones make the factors
    if (part == 0 && which < params.layout.values_per_key) make_gates(which);
    cta.sync_block();
    store_part(part);
  }

  // Of old rows the deltas: what the system's solution has in their place. By the warps that do not solve it.
  FOURFOLD_DEVICE void make_values(int head) const {
    constexpr int threads = kPrepareThreads - 32 * kSolveWarps;
    static_assert(threads % kPairs == 0);
    const int thread = cta.thread() - 32 * kSolveWarps;
    const int channel = 2 * params.layout.key_dim + head * D + 2 * pair_of(thread);
    Asked asked{};
#pragma unroll 1
    for (int task = thread - threads; task < kTasks; task += threads) {
      const Asked own = asked;
      const Taps taps = load_taps(channel);  // again: held, they would spill
      if (task + threads < kTasks) ask_inputs(channel, eight_of(task + threads), asked);
      if (task < 0) continue;
      Pair pair;
      convolve_pair(channel, eight_of(task), own, taps, pair);
      take_old_rows(slot.delta(head, block_begin()), eight_of(task), pair_of(task), pair);
      store_columns(task, pair, storage.value_columns(), nullptr);
    }
  }

  // beta and the log decay of rows, a warp to half of a value head's; the latter where G will be.
  FOURFOLD_DEVICE void make_logits() const {
#pragma unroll 1
    for (int i = cta.warp(); i < 2 * params.layout.values_per_key; i += kPrepareWarps) {
      const int which = i >> 1, head = first_value_head() + which, at = cta.lane() + 32 * (i & 1);
      float step = 0.0f, beta = 0.0f;
      if (at >= start && at < end) {
        const std::uint16_t* row = mixed_row(place.first_row + at - start);
        const float a_log = cta.load_stream(params.weights.a_log + head);
        const float dt_bias = cta.load_stream(params.weights.dt_bias + head);
        const float beta_logit = bf16_at(row + params.mixed.beta_column + head);
        const float decay_logit = bf16_at(row + params.mixed.decay_column + head);
        beta = device::sigmoid<Cta>(beta_logit);
        step = log_decay<Cta>(decay_logit, a_log, dt_bias);
      }
      cta.store_shared(&storage.beta[which][at], beta);
      cta.store_shared(&storage.decay[which][at], step);
    }
  }

  // G of a value head, by one warp: lane l has rows l and l + 32. G grows from the last old row's by a sum
  // over the warp in a fixed tree; rows after the chunk add nothing.
  FOURFOLD_DEVICE void make_gates(int which) const {
    const int head = first_value_head() + which, lane = cta.lane();
    const float before = start > 0 ? cta.load(slot.decay(head, place.position - 1)) : 0.0f;
    float total[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      total[half] = cta.load_shared(&storage.decay[which][lane + 32 * half]);
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
