// The elementary functions against double precision, over dense sweeps of all floats: the errors the header
// claims.
#include "kernels/device/functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/device/sim/cta.h"

namespace fourfold::device {
namespace {

using Host = SimCta;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every `stride`-th float from `low` to `high`, both of one sign, and the two ends.
template <class Visit>
void sweep(float low, float high, std::uint32_t stride, const Visit& visit) {
  const auto first = std::bit_cast<std::uint32_t>(low), last = std::bit_cast<std::uint32_t>(high);
  for (std::uint64_t bits = first; bits <= last; bits += stride)
    visit(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  visit(high);
}
template <class Visit>
void sweep_both_signs(float high, std::uint32_t stride, const Visit& visit) {
  sweep(0.0f, high, stride, [&](float x) {
    visit(x);
    visit(-x);
  });
}

// Distance between neighbouring floats at a value.
double ulp_of(double value) {
  const double magnitude = std::max(std::abs(value), 0x1p-126);
  return std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

TEST(Exp, IsWithinOneAndAHalfUlp) {
  double worst = 0.0;
  const auto check = [&](float x) {
    if (x < -87.0f || x >= 88.7f) return;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_f32<Host>(x)) - exact) / ulp_of(exact));
  };
  sweep_both_signs(88.7f, 499, check);
  // Around the multiples of ln 2, where the reduction changes over.
  for (int n = -251; n <= 255; ++n)
    for (int i = -2000; i <= 2000; ++i) check(static_cast<float>((n + i * 0x1p-20) * 0.34657359027997264));
  EXPECT_LE(worst, 1.5);
  EXPECT_GT(worst, 0.5);  // an error no larger than rounding would mean that the sweep missed the hard places
}

TEST(Exp, TheEnds) {
  EXPECT_EQ(exp_f32<Host>(0.0f), 1.0f);
  EXPECT_EQ(exp_f32<Host>(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32<Host>(1e-45f), 1.0f);
  EXPECT_EQ(exp_f32<Host>(kInf), kInf);
  EXPECT_EQ(exp_f32<Host>(-kInf), 0.0f);
  EXPECT_EQ(exp_f32<Host>(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(exp_f32<Host>(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_TRUE(std::isnan(exp_f32<Host>(kNan)));
  // Never a subnormal: below -87 the result is zero.
  EXPECT_EQ(exp_f32<Host>(std::nextafter(-87.0f, -100.0f)), 0.0f);
  EXPECT_GE(exp_f32<Host>(-87.0f), std::numeric_limits<float>::min());
  EXPECT_EQ(exp_f32<Host>(88.7f), kInf);
  EXPECT_LT(exp_f32<Host>(std::nextafter(88.7f, 0.0f)), kInf);
}

TEST(Exp, NeverFallsAsItsArgumentRisesByMoreThanItsError) {
  float before = 0.0f;
  sweep(0x1p-20f, 88.6f, 997, [&](float x) {
    const float value = exp_f32<Host>(x);
    EXPECT_GE(value, before * (1.0f - 0x1p-21f)) << x;
    before = value;
  });
}

// What the header says of sigmoid: relative error at most 2^-21 + |x| * 2^-23 up to 86, beyond 2^-124 at
// most.
double sigmoid_bound(double x, double exact) {
  return std::abs(x) <= 86.0 ? exact * (0x1p-21 + std::abs(x) * 0x1p-23) : 0x1p-124 + exact * 0x1p-21;
}
double exact_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Sigmoid, IsWithinItsClaim) {
  double worst = 0.0;
  const auto check = [&](float x) {
    const double exact = exact_sigmoid(x), error = std::abs(static_cast<double>(sigmoid<Host>(x)) - exact);
    const double ratio = error / sigmoid_bound(x, exact);
    worst = std::max(worst, ratio);
    ASSERT_LE(ratio, 1.0) << x;
  };
  sweep_both_signs(200.0f, 499, check);
  sweep_both_signs(std::numeric_limits<float>::max(), 99991, check);
  for (int n = -251; n <= 255; ++n)
    for (int i = -1000; i <= 1000; ++i) check(static_cast<float>((n + i * 0x1p-18) * 0.34657359027997264));
  EXPECT_GT(worst, 0.05);
}

TEST(Sigmoid, TheEnds) {
  EXPECT_NEAR(sigmoid<Host>(0.0f), 0.5f, 0x1p-22f);
  EXPECT_NEAR(sigmoid<Host>(kInf), 1.0f, 0x1p-21f);
  EXPECT_NEAR(sigmoid<Host>(-kInf), 0.0f, 0x1p-124f);
  for (const float x : {-kInf, -1e30f, -100.0f, 100.0f, 1e30f, kInf}) EXPECT_GE(sigmoid<Host>(x), 0.0f) << x;
}

// Two more products round; beyond 86 the sigmoid's absolute error is multiplied. Products below the normal
// numbers lose at most half a step of the subnormals, of gate * sigmoid and then, times up, again.
double swiglu_bound(double gate, double up) {
  const double s = exact_sigmoid(gate);
  const double relative = std::abs(gate * s * up) * 0x1p-22;
  return sigmoid_bound(gate, s) * std::abs(gate * up) * (1.0 + 0x1p-20) + relative +
         0x1p-149 * (1.0 + std::abs(up));
}

TEST(Swiglu, IsWithinWhatItsStepsAllow) {
  Random random(1);
  double worst = 0.0;
  const auto check = [&](float gate, float up) {
    const double exact = gate * exact_sigmoid(gate) * static_cast<double>(up);
    if (std::abs(exact) > 3e38) return;
    const double error = std::abs(static_cast<double>(swiglu<Host>(gate, up)) - exact);
    const double ratio = error / swiglu_bound(gate, up);
    worst = std::max(worst, ratio);
    ASSERT_LE(ratio, 1.0) << gate << " " << up;
  };
  sweep_both_signs(120.0f, 2999, [&](float gate) {
    check(gate, 1.0f);
    check(gate, static_cast<float>(random.normal() * 10.0));
  });
  sweep_both_signs(1e6f, 9973,
                   [&](float gate) { check(gate, static_cast<float>(random.uniform(-2.0, 2.0))); });
  sweep_both_signs(1e30f, 9973, [&](float up) { check(static_cast<float>(random.normal() * 8.0), up); });
  EXPECT_GT(worst, 0.05);
}

// Below the limits it is silu(alpha * gate) / alpha * (up + 1); at and beyond them what it is at the limit.
TEST(Swiglu, ClampedAtBothLimits) {
  constexpr float alpha = 1.702f, limit = 7.0f;
  const auto clamped = [&](float gate, float up) { return clamped_swiglu<Host>(gate, up, alpha, limit); };
  Random random(2);
  for (int i = 0; i < 20'000; ++i) {
    const auto gate = static_cast<float>(random.normal() * 8.0),
               up = static_cast<float>(random.normal() * 8.0);
    const double g = std::min(double{gate}, 7.0), u = std::clamp(double{up}, -7.0, 7.0);
    const double turned = double{alpha} * g, s = exact_sigmoid(turned), exact = g * s * (u + 1.0);
    // The sigmoid's own error, its argument's rounding (the slope of its logarithm is at most 1), and two
    // products and a sum that round.
    const double bound = std::abs(g * (u + 1.0)) * sigmoid_bound(turned, s) * (1.0 + 0x1p-20) +
                         std::abs(exact) * (std::abs(turned) * 0x1p-23 + 0x1p-22) + 0x1p-140;
    ASSERT_LE(std::abs(double{clamped(gate, up)} - exact), bound) << gate << " " << up;
  }
  EXPECT_EQ(clamped(7.5f, 1.0f), clamped(7.0f, 1.0f));
  EXPECT_EQ(clamped(kInf, 1.0f), clamped(7.0f, 1.0f));
  EXPECT_EQ(clamped(1.0f, 100.0f), clamped(1.0f, 7.0f));
  EXPECT_EQ(clamped(1.0f, -100.0f), clamped(1.0f, -7.0f));
  EXPECT_NE(clamped(-7.5f, 1.0f), clamped(-7.0f, 1.0f)) << "the gate has no lower limit";
  EXPECT_EQ(clamped(0.0f, 3.0f), 0.0f) << "padding stays zero";
  EXPECT_EQ(clamped(3.0f, -1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(clamped(kNan, 1.0f)));
  EXPECT_TRUE(std::isnan(clamped(1.0f, kNan)));
}

TEST(Swiglu, NumbersThatAreNone) {
  for (const float x : {0.0f, 1.0f, -1.0f, -200.0f, kInf, -kInf}) {
    EXPECT_TRUE(std::isnan(swiglu<Host>(kNan, x))) << x;
    EXPECT_TRUE(std::isnan(swiglu<Host>(x, kNan))) << x;
  }
  EXPECT_EQ(swiglu<Host>(kInf, 2.0f), kInf);
  EXPECT_EQ(swiglu<Host>(kInf, -2.0f), -kInf);
  EXPECT_EQ(swiglu<Host>(1.0f, kInf), kInf);
  EXPECT_EQ(swiglu<Host>(-1.0f, kInf), -kInf);
  EXPECT_EQ(swiglu<Host>(0.0f, 5.0f), 0.0f);
  EXPECT_TRUE(std::signbit(swiglu<Host>(-0.0f, 5.0f)));
  EXPECT_TRUE(std::isnan(swiglu<Host>(0.0f, kInf)));
}

TEST(Reciprocal, IsTheNearestFloat) {
  // Half an ulp from the true value, subnormal results included.
  sweep_both_signs(std::numeric_limits<float>::max(), 1999, [](float x) {
    if (x == 0.0f) return;
    const double exact = 1.0 / static_cast<double>(x), got = Host::reciprocal(x);
    if (std::abs(exact) >= 0x1.ffffffp127) {
      EXPECT_TRUE(std::isinf(got));
    } else {
      EXPECT_LE(std::abs(got - exact), 0.5 * ulp_of(exact)) << x;
    }
  });
  EXPECT_EQ(Host::reciprocal(0.0f), kInf);
  EXPECT_EQ(Host::reciprocal(-0.0f), -kInf);
  EXPECT_EQ(Host::reciprocal(kInf), 0.0f);
  EXPECT_TRUE(std::isnan(Host::reciprocal(kNan)));
}

TEST(Log, IsWithinOneAndAHalfUlp) {
  double worst = 0.0;
  const auto check = [&](float x) {
    const double exact = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(log_f32<Host>(x)) - exact) / ulp_of(exact));
  };
  sweep(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(), 997, check);
  // Around one, where the result is as small as its argument's last bits, and where the reduction changes
  // over.
  sweep(0.5f, 2.0f, 7, check);
  EXPECT_LE(worst, 1.5);
  EXPECT_GT(worst, 0.5);
  EXPECT_EQ(log_f32<Host>(1.0f), 0.0f);
}

TEST(Softplus, KeepsItsRelativeError) {
  double worst = 0.0;
  sweep_both_signs(86.0f, 499, [&](float x) {
    const double exact = x > 0 ? x + std::log1p(std::exp(-static_cast<double>(x)))
                               : std::log1p(std::exp(static_cast<double>(x)));
    worst = std::max(worst, std::abs(static_cast<double>(softplus<Host>(x)) - exact) / exact);
  });
  EXPECT_LE(worst, 0x1p-21);
  EXPECT_GT(worst, 0x1p-25);
  EXPECT_EQ(softplus<Host>(100.0f), 100.0f);
  EXPECT_EQ(softplus<Host>(kInf), kInf);
  EXPECT_LT(softplus<Host>(-86.0f), 0x1p-123f);
  EXPECT_EQ(softplus<Host>(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(softplus<Host>(kNan)));
}

}  // namespace
}  // namespace fourfold::device
