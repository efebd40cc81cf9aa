// The second half of the decode kernel: the delta rule for rows whose queries, keys, values and gates lie in
// shared memory, the gated norm, and the move of S at the end of a block. decode.h has the order of sums.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/decode_inputs.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/lane_math.h"

namespace fourfold::delta {

template <class Head>
struct DecodeRule {
  using Values = typename Head::Values;
  static constexpr int kCount = Head::kCount, kKeys = Head::kKeys;
  Head& h;

  FOURFOLD_DEVICE Values load(const float* row) const {
    return h.cta.load_shared(as_floats<kCount>(row + kCount * h.lane));
  }
  FOURFOLD_DEVICE void store(float* row, const Values& values) const {
    h.cta.store_shared(as_floats<kCount>(row + kCount * h.lane), values);
  }
  FOURFOLD_DEVICE float* partial(int r, int warp, int which) const {
    return h.storage.work[((r & 1) * kDecodeWarps + warp) * 2 + which];
  }

  // The warp's rows of S against the row's key and query.
  template <class Cta>
  FOURFOLD_DEVICE void read_anchor(Cta cta, int place, int r, Values& known, Values& answer) const {
#pragma unroll
    for (int e = 0; e < kCount; ++e) known.v[e] = answer.v[e] = 0.0f;
#pragma unroll
    for (int k = 0; k < kKeys; k += 4) {
      const auto key = cta.load_shared(as_floats<4>(h.storage.keys[place] + kKeys * h.warp + k));
      const auto query = cta.load_shared(as_floats<4>(h.storage.query[r] + kKeys * h.warp + k));
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          known.v[e] = Cta::fma(key.v[i], h.anchor[k + i][e], known.v[e]);
          answer.v[e] = Cta::fma(query.v[i], h.anchor[k + i][e], answer.v[e]);
        }
    }
    const float decay = cta.load_shared(h.storage.from_anchor + r);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      known.v[e] = Cta::mul(known.v[e], decay);
      answer.v[e] = Cta::mul(answer.v[e], decay);
    }
  }

  // Decayed products of the row's key and query with the keys of the warp's rows 8m + warp up to `place`. Of
  // lane l: m = l / 2 % 8, by key in the lower half of the warp, by query in the upper.
  template <class Cta>
  FOURFOLD_DEVICE float past_factor(Cta cta, int place, int r) const {
    const Values key = load(h.storage.keys[place]), query = load(h.storage.query[r]);
    float products[16];
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      products[m] = products[8 + m] = 0.0f;
      if (8 * m + h.warp > place) continue;
      const Values past = load(h.storage.keys[8 * m + h.warp]);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        products[m] = Cta::fma(past.v[e], key.v[e], products[m]);
        products[8 + m] = Cta::fma(past.v[e], query.v[e], products[8 + m]);
      }
    }
    const float product = sixteen_sums_of_warp(cta, products);
    const int of = 8 * (h.lane / 2 % 8) + h.warp;
    if (of > place) return 0.0f;
    const float since =
        Cta::add(cta.load_shared(h.storage.decay + place), -cta.load_shared(h.storage.decay + of));
    return Cta::mul(product, device::exp_f32<Cta>(since));
  }

  // The warp's part of what S and the rows before this eight know.
  template <class Cta>
  FOURFOLD_DEVICE void add_partial(Cta cta, int place, int r) const {
    Values known, answer;
    read_anchor(cta, place, r, known, answer);
    const float factor = past_factor(cta, place, r);
    const int eight = place / 8;
#pragma unroll
    for (int m = 0; m < 7; ++m) {
      if (m >= eight) break;
      const Values delta = load(h.storage.deltas[8 * m + h.warp]);
      const float by_key = cta.shuffle(factor, 2 * m), by_query = cta.shuffle(factor, 16 + 2 * m);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        known.v[e] = Cta::fma(by_key, delta.v[e], known.v[e]);
        answer.v[e] = Cta::fma(by_query, delta.v[e], answer.v[e]);
      }
    }
    if (h.lane % 16 == 2 * eight) cta.store_shared(&h.storage.eight[r][h.lane / 16][h.warp], factor);
    store(partial(r, h.warp, 0), known);
    store(partial(r, h.warp, 1), answer);
  }

  template <class Cta>
  FOURFOLD_DEVICE void add_warps(Cta, int r) const {
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      Values part[kDecodeWarps];
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) part[w] = load(partial(r, w, which));
#pragma unroll
      for (int w = 1; w < kDecodeWarps; ++w)
#pragma unroll
        for (int e = 0; e < kCount; ++e) part[0].v[e] = Cta::add(part[0].v[e], part[w].v[e]);
      store(which == 0 ? h.storage.query[r] : h.storage.answer[r], part[0]);
    }
  }

  // sum + factors . the rows of the eight, `count` of them.
  template <class Cta>
  FOURFOLD_DEVICE Values add_eight(Cta cta, Values sum, const float (&factors)[8], int eight,
                                   int count) const {
#pragma unroll 1
    for (int half = 0; half < count; half += 4) {
      Values delta[4];
      float factor[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (half + w >= count) continue;
        delta[w] = load(h.storage.deltas[8 * eight + half + w]);
        factor[w] = cta.load_shared(factors + half + w);
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (half + w >= count) continue;
#pragma unroll
        for (int e = 0; e < kCount; ++e) sum.v[e] = Cta::fma(factor[w], delta[w].v[e], sum.v[e]);
      }
    }
    return sum;
  }

  // d = beta (v - what is known by key)
  template <class Cta>
  FOURFOLD_DEVICE void solve_delta(Cta cta, int position, int r) const {
    const int place = place_in_block(position);
    const Values value = load(h.storage.value[r]);
    const Values known =
        add_eight(cta, load(h.storage.query[r]), h.storage.eight[r][0], place / 8, place % 8);
    const float beta = cta.load_shared(h.storage.beta + r);
    Values delta;
#pragma unroll
    for (int e = 0; e < kCount; ++e) delta.v[e] = Cta::mul(beta, Cta::add(value.v[e], -known.v[e]));
    store(h.storage.deltas[place], delta);
    cta.store(as_floats<kCount>(h.lane_of(h.slot.delta(h.head, position))), delta);
  }

  template <class Cta>
  FOURFOLD_DEVICE void finish_row(Cta cta, int position, int r) const {
    const int place = place_in_block(position);
    const Values answer =
        add_eight(cta, load(h.storage.answer[r]), h.storage.eight[r][1], place / 8, place % 8 + 1);
    const LayerWeights& weights = h.params.weights;
    const Values out =
        gated_norm(cta, answer, opened<Cta>(load(h.storage.gate[r]), weights.gate_is_sigmoid != 0),
                   load(h.storage.norm_weight), weights.epsilon);
    const std::int64_t row = h.place.first_row + position - h.place.position;
    store_bf16(cta, h.params.out + row * h.params.out_stride + 32 * kCount * h.head + kCount * h.lane, out);
  }

  // Rows of one eight, `first` of the chunk on. A row alone stays with warp 0.
  template <class Cta>
  FOURFOLD_DEVICE void take_rows(Cta cta, int position, int first, int count) const {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      h.forget_addresses();
      add_partial(cta, place_in_block(position + i), first + i);
      cta.sync_block();  // the row's partial sums are there; those of the row before it are read
      if (h.warp == i) add_warps(cta, first + i);
    }
    if (count > 1) cta.sync_block();
    h.forget_addresses();
    if (h.warp == 0)
#pragma unroll 1
      for (int i = 0; i < count; ++i) solve_delta(cta, position + i, first + i);
    if (count > 1) cta.sync_block();
    h.forget_addresses();
    if (h.warp < count) finish_row(cta, position + h.warp, first + h.warp);
    cta.sync_block();  // deltas are there for the rows to come, the work space is free
  }

  // S = e^G S + sum of e^(G - G_j) k_j d_j, G of the block's last row; to registers and to the other place.
  template <class Cta>
  FOURFOLD_DEVICE void move_anchor(Cta cta, int block) const {
    float* factors = h.storage.work[0];
    const float end = cta.load_shared(h.storage.decay + kBlockRows - 1);
    if (cta.thread() < kBlockRows)
      cta.store_shared(factors + cta.thread(),
                       device::exp_f32<Cta>(Cta::add(end, -cta.load_shared(h.storage.decay + cta.thread()))));
    cta.sync_block();
    const float keep = device::exp_f32<Cta>(end);
#pragma unroll
    for (int k = 0; k < kKeys; ++k)
#pragma unroll
      for (int e = 0; e < kCount; ++e) h.anchor[k][e] = Cta::mul(keep, h.anchor[k][e]);
    h.forget_addresses();
#pragma unroll 1
    for (int j = 0; j < kBlockRows; ++j) {
      Values delta = load(h.storage.deltas[j]);
      const float factor = cta.load_shared(factors + j);
#pragma unroll
      for (int e = 0; e < kCount; ++e) delta.v[e] = Cta::mul(factor, delta.v[e]);
#pragma unroll
      for (int k = 0; k < kKeys; k += 4) {
        const auto key = cta.load_shared(as_floats<4>(h.storage.keys[j] + kKeys * h.warp + k));
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            h.anchor[k + i][e] = Cta::fma(key.v[i], delta.v[e], h.anchor[k + i][e]);
      }
    }
    float* to = h.slot.anchor(block + 1, h.head) + kKeys * h.warp * 32 * kCount + kCount * h.lane;
#pragma unroll
    for (int k = 0; k < kKeys; ++k) {
      Values row;
#pragma unroll
      for (int e = 0; e < kCount; ++e) row.v[e] = h.anchor[k][e];
      cta.store(as_floats<kCount>(to + k * 32 * kCount), row);
    }
    cta.sync_block();  // the block's rows make room for the next one's
  }
};

}  // namespace fourfold::delta
