// The numbers of the softmax: weights are powers of two of scores scaled by log2(e).
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/functions.h"

namespace fourfold::attention {

// The score of a position that a row may not see, and the maximum before the first score. Finite, so that the
// difference of two of them is 0 and not NaN.
inline constexpr float kUnseen = -1e30f;
// The maximum before the first score where whole pages in front of a window may be unseen: so far above
// kUnseen that their weights are 0, so far below every score that the first one's factor is.
inline constexpr float kNothingSeen = -5e29f;
template <class Row>
inline constexpr float kFirstLargest = Row::is_windowed ? kNothingSeen : kUnseen;

inline constexpr float kLog2E = 1.44269504088896341f;

// The window of rows that have one.
template <class Row, class Params>
FOURFOLD_DEVICE int window_of(const Params& params) {
  if constexpr (Row::is_windowed)
    return params.window;
  else
    return 0;
}

// 2^x for x in [-126, 0], exactly 1 at 0. Relative error at most 2^-22.4 (polynomial 2^-23.1 before
// rounding). NaN stays NaN; of smaller x any number.
template <class Cta>
FOURFOLD_DEVICE float exp2_inside(float x) {
  constexpr float round_magic =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  const float shifted = Cta::add(x, round_magic);
  const float rest = Cta::add(x, -Cta::add(shifted, -round_magic));  // in [-1/2, 1/2], exact
  float p = 0.00132647273f;
  p = Cta::fma(p, rest, 0.00967151299f);
  p = Cta::fma(p, rest, 0.0555073358f);
  p = Cta::fma(p, rest, 0.240222424f);
  p = Cta::fma(p, rest, 0.693147004f);
  p = Cta::fma(p, rest, 1.0f);
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000u);
  return Cta::mul(p, power);
}
// The same, and 0 below -126: a row that meets a block it may not see must leave it unchanged, bit for bit.
template <class Cta>
FOURFOLD_DEVICE float exp2_weight(float x) {
  return x < -126.0f ? 0.0f : exp2_inside<Cta>(x);
}
// The same bits without a branch: for places where a thread computes many at once, which then run side by
// side.
template <class Cta>
FOURFOLD_DEVICE float flat_weight(float x) {
  const float inside = Cta::keep(exp2_inside<Cta>(x));  // so that it is not made a branch of
  return x < -126.0f ? 0.0f : inside;
}

// The sigmoid of a gate; it does not keep NaN, so a gate that is none passes itself on.
template <class Cta>
FOURFOLD_DEVICE float gate_factor(float gate) {
  return gate == gate ? device::sigmoid<Cta>(gate) : gate;
}

}  // namespace fourfold::attention
