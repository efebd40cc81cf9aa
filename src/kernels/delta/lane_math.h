// Small things the DeltaNet kernels share: a lane's slice of a head, sums over a warp, the gates of a row.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr float kL2Epsilon = 1e-6f;  // under the root, beside the sum of squares

// Neighbouring columns of a lane: a head of 128 has four to a lane.
template <int Count>
struct alignas(4 * Count) Floats {
  float v[Count];
};
template <int Count>
FOURFOLD_DEVICE const Floats<Count>* as_floats(const float* from) {
  return reinterpret_cast<const Floats<Count>*>(from);
}
template <int Count>
FOURFOLD_DEVICE Floats<Count>* as_floats(float* from) {
  return reinterpret_cast<Floats<Count>*>(from);
}

// Every lane gets the sum; the tree is fixed.
template <class Cta>
FOURFOLD_DEVICE float sum_of_warp(Cta cta, float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) value = Cta::add(value, cta.shuffle_xor(value, mask));
  return value;
}

// Sixteen such sums with as many shuffles as lanes have bits to halve by: lane l gets number l / 2. The tree
// of each is that of sum_of_warp.
template <class Cta>
FOURFOLD_DEVICE float sixteen_sums_of_warp(Cta cta, float (&values)[16]) {
#pragma unroll
  for (int level = 0; level < 4; ++level) {
    const int mask = 16 >> level, left = 8 >> level;
    const bool upper = (cta.lane() & mask) != 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= left) continue;
      const float mine = upper ? values[i + left] : values[i];
      const float theirs = upper ? values[i] : values[i + left];
      values[i] = Cta::add(mine, cta.shuffle_xor(theirs, mask));
    }
  }
  return Cta::add(values[0], cta.shuffle_xor(values[0], 1));
}

// Eight sums over the `Lanes` lanes of a group, with as few shuffles as halving needs: a lane gets number
// (lane / (Lanes / 8)) % 8 of its group.
template <int Lanes, class Cta>
FOURFOLD_DEVICE float eight_sums(Cta cta, float (&values)[8]) {
#pragma unroll
  for (int level = 0; level < 3; ++level) {
    const int mask = Lanes / 2 >> level, left = 4 >> level;
    const bool upper = (cta.lane() & mask) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= left) continue;
      const float mine = upper ? values[i + left] : values[i];
      const float theirs = upper ? values[i] : values[i + left];
      values[i] = Cta::add(mine, cta.shuffle_xor(theirs, mask));
    }
  }
  float sum = values[0];
#pragma unroll
  for (int mask = Lanes / 16; mask > 0; mask >>= 1) sum = Cta::add(sum, cta.shuffle_xor(sum, mask));
  return sum;
}

template <class Cta, int Count>
FOURFOLD_DEVICE float sum_of_squares(Cta cta, const Floats<Count>& x) {
  float sum = Cta::mul(x.v[0], x.v[0]);
#pragma unroll
  for (int e = 1; e < Count; ++e) sum = Cta::fma(x.v[e], x.v[e], sum);
  return sum_of_warp(cta, sum);
}

// The convolution of four inputs, oldest first.
template <class Cta, int Count>
FOURFOLD_DEVICE Floats<Count> convolution(const Floats<Count> (&x)[kTaps],
                                          const Floats<kTaps> (&taps)[Count]) {
  Floats<Count> out;
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    out.v[e] = Cta::mul(taps[e].v[0], x[0].v[e]);
#pragma unroll
    for (int tap = 1; tap < kTaps; ++tap) out.v[e] = Cta::fma(taps[e].v[tap], x[tap].v[e], out.v[e]);
  }
  return out;
}

// silu, or the sigmoid alone.
template <class Cta, int Count>
FOURFOLD_DEVICE Floats<Count> opened(Floats<Count> x, bool is_sigmoid) {
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    const float open = device::sigmoid<Cta>(x.v[e]);
    x.v[e] = is_sigmoid ? open : Cta::mul(x.v[e], open);
  }
  return x;
}

// x / |x| * scale over the warp's lanes.
template <class Cta, int Count>
FOURFOLD_DEVICE Floats<Count> normalized(Cta cta, Floats<Count> x, float scale) {
  const float square = Cta::add(sum_of_squares(cta, x), kL2Epsilon);
  const float factor = Cta::mul(Cta::reciprocal(Cta::sqrt(square)), scale);
#pragma unroll
  for (int e = 0; e < Count; ++e) x.v[e] = Cta::mul(x.v[e], factor);
  return x;
}

// head_dim^-1/2, rounded.
template <int HeadDim>
inline constexpr float kQueryScale = HeadDim == 128  ? 0.0883883461f
                                     : HeadDim == 64 ? 0.125f
                                                     : 0.176776692f;

// log of the factor by which a row's state forgets: -rate softplus(logit + dt_bias), never above zero. The
// head's rate is e^a_log.
template <class Cta>
FOURFOLD_DEVICE float log_decay_of(float logit, float rate, float dt_bias) {
  return -Cta::mul(rate, device::softplus<Cta>(Cta::add(logit, dt_bias)));
}
template <class Cta>
FOURFOLD_DEVICE float log_decay(float logit, float a_log, float dt_bias) {
  return log_decay_of<Cta>(logit, device::exp_f32<Cta>(a_log), dt_bias);
}

// The gated norm of a head's answer: rms norm with plain weights, then what the gate opened.
template <class Cta, int Count>
FOURFOLD_DEVICE Floats<Count> gated_norm(Cta cta, const Floats<Count>& x, const Floats<Count>& open,
                                         const Floats<Count>& weight, float epsilon) {
  constexpr float one_over_dim = 1.0f / (32.0f * Count);
  const float mean = Cta::mul(sum_of_squares(cta, x), one_over_dim);
  const float factor = Cta::reciprocal(Cta::sqrt(Cta::add(mean, epsilon)));
  Floats<Count> out;
#pragma unroll
  for (int e = 0; e < Count; ++e)
    out.v[e] = Cta::mul(Cta::mul(Cta::mul(x.v[e], factor), weight.v[e]), open.v[e]);
  return out;
}

template <class Cta, int Count>
FOURFOLD_DEVICE void store_bf16(Cta cta, std::uint16_t* to, const Floats<Count>& x) {
  if constexpr (Count == 1) {
    cta.store(to, static_cast<std::uint16_t>(Cta::pack_bf16(x.v[0], 0.0f)));
  } else if constexpr (Count == 2) {
    cta.store(reinterpret_cast<std::uint32_t*>(to), Cta::pack_bf16(x.v[0], x.v[1]));
  } else {
    cta.store(reinterpret_cast<device::U32x2*>(to),
              device::U32x2{{Cta::pack_bf16(x.v[0], x.v[1]), Cta::pack_bf16(x.v[2], x.v[3])}});
  }
}

}  // namespace fourfold::delta
