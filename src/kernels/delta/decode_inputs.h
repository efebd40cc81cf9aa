// The first half of the decode kernel: a chunk of rows from the projections to queries, keys, values and
// gates in shared memory, and what the state keeps of them.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/lane_math.h"
#include "kernels/device/quotient.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr int kDecodeWarps = 8;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kChunkRows = 8;  // taken through the kernel at once; they do not cross into a new block
inline constexpr int kParts = 3;      // q, k, v
inline constexpr int kGateWarp = 2 * kParts;
static_assert(kGateWarp < kDecodeWarps, "two warps convolve each part, one computes gates");

template <int D>
struct DecodeStorage {
  float keys[kBlockRows][D];    // of the current block, by position
  float deltas[kBlockRows][D];  // likewise
  // Of the chunk's rows.
  float query[kChunkRows][D];   // then what the rows before this eight know by the row's key
  float answer[kChunkRows][D];  // what they answer to its query
  float value[kChunkRows][D];
  float gate[kChunkRows][D];
  // The convolution's inputs, [3 rows before + chunk][part]; then the warps' partial sums, [2][warp][2].
  float work[(kTaps - 1 + kChunkRows) * kParts][D];
  float norm_weight[D];
  float decay[kBlockRows];  // G, by position
  float from_anchor[kChunkRows];
  float beta[kChunkRows];
  float eight[kChunkRows][2][8];  // factors of the rows of the same eight: by key; by query, its own too
  device::Mbarrier past_full;
};

// A value head of a sequence, and what a thread holds of it throughout.
template <int D, class Cta>
struct DecodeHead {
  static constexpr int kCount = D / 32;           // columns of a lane
  static constexpr int kKeys = D / kDecodeWarps;  // rows of S of a warp
  using Values = Floats<kCount>;

  Cta cta;
  const DecodeParams& params;
  DecodeStorage<D>& storage;
  step::SequencePlace place;
  SlotState<D> slot;
  int head, key_head, warp, lane;
  bool owns_key;  // writes what the value heads of a key head have in common

  Floats<kTaps> taps[kCount];  // of the warp's part
  float a_log, dt_bias;
  float old_decay;  // of row thread() of the block
  float beta_logit, decay_logit;
  float anchor[kKeys][kCount];  // S of keys kKeys * warp.. and the lane's values

  FOURFOLD_DEVICE DecodeHead(Cta machine, const DecodeParams& arguments, int sequence,
                             const step::SequencePlace& where)
      : cta(machine),
        params(arguments),
        storage(*Cta::keep(&machine.template shared<DecodeStorage<D>>())),
        place(where),
        slot(slot_of<D>(arguments.state, arguments.layout, where.state_slot)),
        head(machine.block() - sequence * arguments.layout.value_heads),
        key_head(device::quotient<Cta>(head, arguments.layout.values_per_key)),
        warp(machine.warp()),
        lane(machine.lane()),
        owns_key(head == key_head * arguments.layout.values_per_key) {}

  // Between the kernel's parts: addresses are cheap to make and expensive to hold, and the compiler would
  // hold them all around the loop over chunks.
  FOURFOLD_DEVICE void forget_addresses() {
    lane = Cta::keep(lane);
    head = Cta::keep(head);
    key_head = Cta::keep(key_head);
    place.first_row = Cta::keep(place.first_row);
    slot.base = Cta::keep(slot.base);
  }

  FOURFOLD_DEVICE int block_begin() const { return place.position - place_in_block(place.position); }
  // First channel of the head's q, k or v.
  FOURFOLD_DEVICE int channel(int part) const {
    const int key_dim = params.layout.key_dim;
    return part < 2 ? part * key_dim + key_head * D : 2 * key_dim + head * D;
  }
  FOURFOLD_DEVICE const float* mixed_row(int row) const {
    return static_cast<const float*>(params.mixed.rows) + std::int64_t{row} * params.mixed.stride;
  }
  FOURFOLD_DEVICE float* lane_of(float* row) const { return row + kCount * lane; }

  // What earlier rows left: the block's keys, deltas and decays, and S. All of it was written at least one
  // step ago: it may be on its way before wait_predecessors.
  FOURFOLD_DEVICE void load_past() {
    const int past = place_in_block(place.position);
    if (cta.thread() == 0) {
      cta.init(&storage.past_full, 1);
      cta.fence_barrier_init();
      if (past > 0) {
        const int bytes = past * D * 4;
        cta.arrive_expect(&storage.past_full, 2 * bytes);
        cta.bulk_load(storage.keys, slot.key(key_head, block_begin()), bytes, &storage.past_full);
        cta.bulk_load(storage.deltas, slot.delta(head, block_begin()), bytes, &storage.past_full);
      }
    }
    load_anchor();
    old_decay = 0.0f;
    if (cta.thread() < past) old_decay = cta.load(slot.decay(head, block_begin() + cta.thread()));
  }

  // What else does not come from this layer's projection: inputs of the convolution, and constants.
  FOURFOLD_DEVICE void load_inputs() {
    load_window(place.position, 0, kTaps - 1);
    const auto* weights = params.weights.norm_weight;
    if (cta.thread() < D / 4)
      cta.copy_16_async(storage.norm_weight + 4 * cta.thread(), weights + 4 * cta.thread());
    load_weights();
  }

  // Asked for again before each further chunk: held meanwhile, they would cost S its registers.
  FOURFOLD_DEVICE void load_weights() {
    const int part = warp < kGateWarp ? warp / 2 : 0;
    const float* from = params.weights.taps + kTaps * (channel(part) + kCount * lane);
#pragma unroll
    for (int e = 0; e < kCount; ++e) taps[e] = cta.load_stream(as_floats<kTaps>(from + kTaps * e));
    a_log = cta.load_stream(params.weights.a_log + head);
    dt_bias = cta.load_stream(params.weights.dt_bias + head);
  }

  FOURFOLD_DEVICE void load_anchor() {
    if (place.position < kBlockRows) {
#pragma unroll
      for (int k = 0; k < kKeys; ++k)
#pragma unroll
        for (int e = 0; e < kCount; ++e) anchor[k][e] = 0.0f;
      return;
    }
    const float* from = slot.anchor(place.position / kBlockRows, head) + kKeys * warp * D + kCount * lane;
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      const Values row = cta.load(as_floats<kCount>(from + k * D));
#pragma unroll
      for (int e = 0; e < kCount; ++e) anchor[k][e] = row.v[e];
    }
  }

  // Rows [first, last) of the convolution's window, which starts three rows before `position`: zeros before
  // the sequence, then the state's, then this step's.
  FOURFOLD_DEVICE void load_window(int position, int first, int last) {
    constexpr int chunks = D / 4, row_chunks = kParts * chunks;
#pragma unroll 1
    for (int i = first * row_chunks + cta.thread(); i < last * row_chunks; i += kDecodeThreads) {
      const int row = i / row_chunks, part = i / chunks % kParts, column = 4 * (i % chunks);
      const int at = position - (kTaps - 1) + row;
      float* to = storage.work[kParts * row + part] + column;
      if (at < 0)
        cta.store_shared(as_floats<4>(to), Floats<4>{});
      else if (at < place.position)
        cta.copy_16_async(to, slot.conv_input(at, channel(part) + column));
      else
        cta.copy_16_async(to, mixed_row(place.first_row + at - place.position) + params.mixed.qkv_column +
                                  channel(part) + column);
    }
  }

  // The chunk's rows of the projection: `first` of the window's rows are there already.
  FOURFOLD_DEVICE void load_rows(int position, int count, int first) {
    load_window(position, first, kTaps - 1 + count);
    const int row = place.first_row + position - place.position;
#pragma unroll 1
    for (int i = cta.thread(); i < count * (D / 4); i += kDecodeThreads) {
      const int r = i / (D / 4), column = 4 * (i % (D / 4));
      cta.copy_16_async(storage.gate[r] + column,
                        mixed_row(row + r) + params.mixed.z_column + head * D + column);
    }
    beta_logit = decay_logit = 0.0f;
    if (warp == kGateWarp && lane < count) {
      beta_logit = cta.load(mixed_row(row + lane) + params.mixed.beta_column + head);
      decay_logit = cta.load(mixed_row(row + lane) + params.mixed.decay_column + head);
    }
    cta.copy_commit();
  }

  // Queries, keys and values: warps 2 * part and 2 * part + 1 take turns.
  FOURFOLD_DEVICE void convolve_rows(int position, int count) {
    const int part = warp / 2;
#pragma unroll 1
    for (int r = warp & 1; r < count; r += 2) {
      Values x[kTaps];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap)
        x[tap] = cta.load_shared(as_floats<kCount>(lane_of(storage.work[kParts * (r + tap) + part])));
      const int at = position + r;
      if (part == 2 || owns_key)
        cta.store(as_floats<kCount>(slot.conv_input(at, channel(part) + kCount * lane)), x[kTaps - 1]);
      Values out = opened<Cta>(convolution<Cta>(x, taps), false);
      if (part == 0) {
        out = normalized(cta, out, kQueryScale<D>);
        cta.store_shared(as_floats<kCount>(lane_of(storage.query[r])), out);
      } else if (part == 1) {
        out = normalized(cta, out, 1.0f);
        cta.store_shared(as_floats<kCount>(lane_of(storage.keys[place_in_block(at)])), out);
        if (owns_key) cta.store(as_floats<kCount>(lane_of(slot.key(key_head, at))), out);
      } else {
        cta.store_shared(as_floats<kCount>(lane_of(storage.value[r])), out);
      }
    }
  }

  // beta and G, a lane a row; G is summed in the order of positions.
  FOURFOLD_DEVICE void compute_gates(int position, int count) {
    const bool is_row = lane < count;
    const float step = is_row ? log_decay<Cta>(decay_logit, a_log, dt_bias) : 0.0f;
    const int at = place_in_block(position);
    float total = at == 0 ? step : Cta::add(step, cta.load_shared(storage.decay + at - 1));
#pragma unroll 1
    for (int r = 1; r < count; ++r) {
      const float before = cta.shuffle(total, r - 1);
      if (lane == r) total = Cta::add(step, before);
    }
    if (!is_row) return;
    cta.store_shared(storage.decay + at + lane, total);
    cta.store_shared(storage.from_anchor + lane, device::exp_f32<Cta>(total));
    cta.store_shared(storage.beta + lane, device::sigmoid<Cta>(beta_logit));
    cta.store(slot.decay(head, position + lane), total);
  }
};

}  // namespace fourfold::delta
