// The decode kernel for a sequence with one row, which is every step of a user without drafts: the sums of
// decode.h, in their order, with as little as possible between the projection's row and the answer. Nothing
// else of the step can go on meanwhile, and code counts as much as work does (docs/decisions/0023).
//
// Before the wait: S, the block's past, the convolution's older inputs and every constant.
//
// After it: warps 0 to 3 take q, k, v and the gate, a row each, straight into registers; warp 4 takes beta
// and G.
//
// First barrier; then add_partial(): each warp adds its rows of S and of the past.
//
// Second barrier; then warp 0: the sums, the row's delta, the gated norm.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/decode_inputs.h"
#include "kernels/delta/decode_rule.h"
#include "kernels/delta/lane_math.h"

namespace fourfold::delta {

inline constexpr int kOpenWarp = kParts;         // has the gate of the norm
inline constexpr int kOneGateWarp = kParts + 1;  // has beta and G
static_assert(kOneGateWarp < kDecodeWarps);

template <class Head>
struct OneRow {
  using Values = typename Head::Values;
  static constexpr int kCount = Head::kCount;
  static constexpr int kDim = 32 * kCount;
  Head& h;

  Values older[kTaps - 1] = {};     // the convolution's inputs before the row, of the warp's part
  Floats<kTaps> taps[kCount] = {};  // and its weights
  float rate = 0.0f, dt_bias = 0.0f, decay_before = 0.0f;
  // Where the state keeps what the row adds; null: another block does it.
  float *input_to = nullptr, *key_to = nullptr;

  explicit FOURFOLD_DEVICE OneRow(Head& head) : h(head) {}

  FOURFOLD_DEVICE int part() const { return h.warp; }
  FOURFOLD_DEVICE int at() const { return place_in_block(h.place.position); }

  // Constants, and what older steps wrote.
  template <class Cta>
  FOURFOLD_DEVICE void load_inputs(Cta cta) {
    const int position = h.place.position;
    if (part() < kParts) {
      const int channel = h.channel(part()) + kCount * h.lane;
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i) {
        const int from = position - (kTaps - 1) + i;
        if (from >= 0) older[i] = cta.load(as_floats<kCount>(h.slot.conv_input(from, channel)));
      }
#pragma unroll
      for (int e = 0; e < kCount; ++e)
        taps[e] = cta.load_stream(as_floats<kTaps>(h.params.weights.taps + kTaps * (channel + e)));
      if (part() == 2 || h.owns_key) input_to = h.slot.conv_input(position, channel);
      if (part() == 1 && h.owns_key) key_to = h.lane_of(h.slot.key(h.key_head, position));
    }
    if (h.warp == kOneGateWarp) {
      rate = device::exp_f32<Cta>(cta.load_stream(h.params.weights.a_log + h.head));
      dt_bias = cta.load_stream(h.params.weights.dt_bias + h.head);
      if (at() > 0) decay_before = cta.load(h.slot.decay(h.head, position - 1));
    }
    if (h.warp == 0)  // which reads it again
      cta.store_shared(as_floats<kCount>(h.lane_of(h.storage.norm_weight)),
                       cta.load_stream(as_floats<kCount>(h.params.weights.norm_weight + kCount * h.lane)));
    if (cta.thread() < at()) cta.store_shared(h.storage.decay + cta.thread(), h.old_decay);
  }

  // q, k, v and the gate have one code: the gate is not convolved, q and k are normalised.
  template <class Cta>
  FOURFOLD_DEVICE void take_part(Cta cta) const {
    const bool convolves = part() < kParts;
    const MixedRows& mixed = h.params.mixed;
    const int column = convolves ? mixed.qkv_column + h.channel(part()) : mixed.z_column + kDim * h.head;
    const Values row = cta.load(as_floats<kCount>(h.mixed_row(h.place.first_row) + column + kCount * h.lane));
    const Values window[kTaps] = {older[0], older[1], older[2], row};
    Values out = convolution<Cta>(window, taps);
#pragma unroll
    for (int e = 0; e < kCount; ++e) out.v[e] = convolves ? out.v[e] : row.v[e];
    out = opened<Cta>(out, !convolves && h.params.weights.gate_is_sigmoid != 0);
    if (part() < 2) out = normalized(cta, out, part() == 0 ? kQueryScale<kDim> : 1.0f);
    float* to = part() == 0   ? h.storage.query[0]
                : part() == 1 ? h.storage.keys[at()]
                : part() == 2 ? h.storage.value[0]
                              : h.storage.gate[0];
    cta.store_shared(as_floats<kCount>(h.lane_of(to)), out);
    if (input_to) cta.store(as_floats<kCount>(input_to), row);
    if (key_to) cta.store(as_floats<kCount>(key_to), out);
  }

  // All lanes compute, one stores.
  template <class Cta>
  FOURFOLD_DEVICE void take_gates(Cta cta) const {
    const float* row = h.mixed_row(h.place.first_row) + h.head;
    const float decay_logit = cta.load(row + h.params.mixed.decay_column);
    const float beta_logit = cta.load(row + h.params.mixed.beta_column);
    const float step = log_decay_of<Cta>(decay_logit, rate, dt_bias);
    const float total = at() == 0 ? step : Cta::add(step, decay_before);
    const float from_anchor = device::exp_f32<Cta>(total), beta = device::sigmoid<Cta>(beta_logit);
    if (h.lane != 0) return;
    cta.store_shared(h.storage.decay + at(), total);
    cta.store_shared(h.storage.from_anchor, from_anchor);
    cta.store_shared(h.storage.beta, beta);
    cta.store(h.slot.decay(h.head, h.place.position), total);
  }

  // Warp 0, when all partial sums are there: DecodeRule's add_warps, solve_delta and finish_row of one row.
  template <class Cta>
  FOURFOLD_DEVICE void finish(Cta cta, const DecodeRule<Head>& rule) const {
    Values known = rule.load(rule.partial(0, 0, 0)), answer = rule.load(rule.partial(0, 0, 1));
#pragma unroll
    for (int w = 1; w < kDecodeWarps; ++w) {
      const Values more_known = rule.load(rule.partial(0, w, 0)), more = rule.load(rule.partial(0, w, 1));
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        known.v[e] = Cta::add(known.v[e], more_known.v[e]);
        answer.v[e] = Cta::add(answer.v[e], more.v[e]);
      }
    }
    const int own = at() % 8;
    const auto& factors = h.storage.eight[0];
#pragma unroll 1
    for (int w = 0; w < own; ++w) {
      const Values delta = rule.load(h.storage.deltas[at() - own + w]);
      const float by_key = cta.load_shared(&factors[0][w]), by_query = cta.load_shared(&factors[1][w]);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        known.v[e] = Cta::fma(by_key, delta.v[e], known.v[e]);
        answer.v[e] = Cta::fma(by_query, delta.v[e], answer.v[e]);
      }
    }
    const Values value = rule.load(h.storage.value[0]);
    const float beta = cta.load_shared(h.storage.beta), by_query = cta.load_shared(&factors[1][own]);
    Values delta;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      delta.v[e] = Cta::mul(beta, Cta::add(value.v[e], -known.v[e]));
      answer.v[e] = Cta::fma(by_query, delta.v[e], answer.v[e]);
    }
    const Values out = gated_norm(cta, answer, rule.load(h.storage.gate[0]), rule.load(h.storage.norm_weight),
                                  h.params.weights.epsilon);
    store_bf16(cta,
               h.params.out + std::int64_t{h.place.first_row} * h.params.out_stride + kDim * h.head +
                   kCount * h.lane,
               out);
    cta.store(as_floats<kCount>(h.lane_of(h.slot.delta(h.head, h.place.position))), delta);
    rule.store(h.storage.deltas[at()], delta);
  }
};

// The kernel behind DecodeHead::load_past().
template <class Cta, class Head>
FOURFOLD_DEVICE void decode_one(Cta cta, Head& head) {
  const DecodeRule<Head> rule{head};
  OneRow<Head> row(head);
  row.load_inputs(cta);
  cta.wait_predecessors();
  cta.release_successors();
  if (head.warp <= kOpenWarp) row.take_part(cta);
  if (head.warp == kOneGateWarp) row.take_gates(cta);
  cta.sync_block();  // the row's parts and gates, the block's G
  const int at = place_in_block(head.place.position);
  if (at > 0) cta.wait(&head.storage.past_full, 0u);
  rule.add_partial(cta, at, 0);
  cta.sync_block();  // every warp's partial sums
  if (head.warp == 0) row.finish(cta, rule);
  if (at + 1 < kBlockRows) return;
  cta.sync_block();  // the row's delta
  rule.move_anchor(cta, head.place.position / kBlockRows);
}

}  // namespace fourfold::delta
