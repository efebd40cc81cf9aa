// Elementary functions and small loops over rows, sixteen lanes at a time. Rows may have any length: what is
// left after the last whole sixteen goes through the same lanes, padded.
#pragma once

#include <cstdint>
#include <cstring>

namespace fourfold::cpu {

// e^x to about two units in the last place, for x of at most 88.3. Smaller ones than -87.3 are cut to that,
// where the result is still a normal number; NaN stays.
template <class L>
[[gnu::always_inline]] inline typename L::F exponential_up_to_88(typename L::F x) {
  using F = typename L::F;
  x = L::larger(L::broadcast(-87.3f), x);
  const F n = L::nearest(L::mul(x, L::broadcast(0x1.715476p+0f)));
  // n ln 2 in two parts: the upper one has few enough bits that the product is exact.
  F r = L::fma(n, L::broadcast(-0x1.62e400p-1f), x);
  r = L::fma(n, L::broadcast(-0x1.7f7d1cp-20f), r);
  F p = L::broadcast(1.0f / 5040);
  p = L::fma(p, r, L::broadcast(1.0f / 720));
  p = L::fma(p, r, L::broadcast(1.0f / 120));
  p = L::fma(p, r, L::broadcast(1.0f / 24));
  p = L::fma(p, r, L::broadcast(1.0f / 6));
  p = L::fma(p, r, L::broadcast(0.5f));
  p = L::fma(p, r, L::broadcast(1.0f));
  p = L::fma(p, r, L::broadcast(1.0f));
  return L::mul(p, L::power_of_two(n));
}
template <class L>
typename L::F exponential(typename L::F x) {
  return exponential_up_to_88<L>(L::smaller(L::broadcast(88.3f), x));
}

template <class L>
typename L::F sigmoid(typename L::F x) {
  const auto one = L::broadcast(1.0f);
  return L::div(one, L::add(one, exponential<L>(L::sub(L::zero(), x))));
}

// Up to sixteen elements; zeros stand for those that are not there.
template <class L>
typename L::F load_some(const float* p, std::int64_t count) {
  if (count >= 16) return L::load(p);
  float all[16] = {};
  std::memcpy(all, p, static_cast<std::size_t>(count) * sizeof(float));
  return L::load(all);
}
template <class L>
void store_some(float* p, std::int64_t count, typename L::F x) {
  if (count >= 16) return L::store(p, x);
  float all[16];
  L::store(all, x);
  std::memcpy(p, all, static_cast<std::size_t>(count) * sizeof(float));
}

template <class L>
float dot(const float* a, const float* b, std::int64_t count) {
  auto sum = L::zero();
  for (std::int64_t i = 0; i < count; i += 16)
    sum = L::fma(load_some<L>(a + i, count - i), load_some<L>(b + i, count - i), sum);
  return L::sum(sum);
}

// out = make(lanes of a, lanes of b)
template <class L, class Make>
void each_pair(const float* a, const float* b, std::int64_t count, float* out, const Make& make) {
  for (std::int64_t i = 0; i < count; i += 16)
    store_some<L>(out + i, count - i, make(load_some<L>(a + i, count - i), load_some<L>(b + i, count - i)));
}

template <class L>
void silu_times(const float* gate, const float* up, std::int64_t count, float* out) {
  each_pair<L>(gate, up, count, out, [](auto g, auto u) { return L::mul(L::mul(g, sigmoid<L>(g)), u); });
}
// gpt-oss: g sigmoid(alpha g) (u + 1), g cut above at the limit and u on both sides; NaN stays.
template <class L>
void clamped_silu_times(const float* gate, const float* up, float alpha, float limit, std::int64_t count,
                        float* out) {
  const auto most = L::broadcast(limit), least = L::broadcast(-limit);
  const auto a = L::broadcast(alpha), one = L::broadcast(1.0f);
  each_pair<L>(gate, up, count, out, [&](auto gate_lanes, auto up_lanes) {
    const auto g = L::smaller(most, gate_lanes);
    const auto u = L::larger(least, L::smaller(most, up_lanes));
    return L::mul(L::mul(g, sigmoid<L>(L::mul(a, g))), L::add(u, one));
  });
}
template <class L>
void sigmoid_times(const float* gate, const float* x, std::int64_t count, float* out) {
  each_pair<L>(gate, x, count, out, [](auto g, auto v) { return L::mul(sigmoid<L>(g), v); });
}
template <class L>
void add_rows(const float* a, const float* b, std::int64_t count, float* out) {
  each_pair<L>(a, b, count, out, [](auto x, auto y) { return L::add(x, y); });
}
// out = a + factor b
template <class L>
void add_scaled(const float* a, const float* b, float factor, std::int64_t count, float* out) {
  const auto f = L::broadcast(factor);
  each_pair<L>(a, b, count, out, [&](auto x, auto y) { return L::fma(f, y, x); });
}
// out = x factor w, or x factor (1 + w)
template <class L>
void scale_by(const float* x, float factor, const float* w, float w_add, std::int64_t count, float* out) {
  const auto f = L::broadcast(factor);
  const auto plus = L::broadcast(w_add);
  each_pair<L>(x, w, count, out, [&](auto v, auto g) { return L::mul(L::mul(v, f), L::add(g, plus)); });
}
template <class L>
void exponentials(const float* x, std::int64_t count, float* out) {
  each_pair<L>(x, x, count, out, [](auto v, auto) { return exponential<L>(v); });
}

// silu of the sum of `taps` products a channel, oldest row first. rows[tap] and weights + tap * weight_stride
// are [count].
template <class L>
void convolve(const float* const* rows, const float* weights, std::int64_t weight_stride, std::int64_t taps,
              std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; i += 16) {
    auto sum = L::zero();
    for (std::int64_t tap = 0; tap < taps; ++tap)
      if (rows[tap] != nullptr)
        sum = L::fma(load_some<L>(weights + tap * weight_stride + i, count - i),
                     load_some<L>(rows[tap] + i, count - i), sum);
    store_some<L>(out + i, count - i, L::mul(sum, sigmoid<L>(sum)));
  }
}

}  // namespace fourfold::cpu
