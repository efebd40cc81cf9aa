#include "kernels/cpu/functions.h"

#include <algorithm>
#include <limits>

#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

TEST(Functions, ExponentialIsWithinTwoUnitsOfTheLastPlace) {
  std::vector<float> x;
  for (double at = -87.2; at < 88.2; at += 0.00371) x.push_back(static_cast<float>(at));
  for (double at = -1e-3; at < 1e-3; at += 1e-6) x.push_back(static_cast<float>(at));
  std::vector<float> out(x.size());
  plain().exponentials(x.data(), static_cast<std::int64_t>(x.size()), out.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    EXPECT_LE(std::abs(static_cast<double>(out[i]) - exact), 2 * 0x1p-23 * exact) << x[i];
  }
}

TEST(Functions, ExponentialAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-inf, -1000, inf, 1000, std::numeric_limits<float>::quiet_NaN(), 0};
  std::vector<float> out(x.size());
  for (const Isa isa : available_isas()) {
    kernels_of(isa).exponentials(x.data(), static_cast<std::int64_t>(x.size()), out.data());
    for (const int i : {0, 1}) EXPECT_LT(out[static_cast<std::size_t>(i)], 1.3e-38f);
    for (const int i : {2, 3}) EXPECT_GT(out[static_cast<std::size_t>(i)], 2e38f);
    EXPECT_TRUE(std::isnan(out[4])) << isa_name(isa);
    EXPECT_EQ(out[5], 1);
  }
}

TEST(Functions, AreWhatTheirNamesSay) {
  const std::vector<float> a = normals(53, 1, 3), b = normals(53, 2);
  std::vector<float> out(53);
  const auto near = [&](std::size_t i, double wanted) {
    EXPECT_NEAR(out[i], wanted, 8 * 0x1p-24 * (1 + std::abs(wanted))) << i;
  };
  const Kernels& k = plain();
  k.silu_times(a.data(), b.data(), 53, out.data());
  for (std::size_t i = 0; i < 53; ++i) near(i, a[i] / (1 + std::exp(-static_cast<double>(a[i]))) * b[i]);
  k.sigmoid_times(a.data(), b.data(), 53, out.data());
  for (std::size_t i = 0; i < 53; ++i) near(i, b[i] / (1 + std::exp(-static_cast<double>(a[i]))));
  k.clamped_silu_times(a.data(), b.data(), 1.702f, 0.75f, 53, out.data());
  for (std::size_t i = 0; i < 53; ++i) {
    const double g = std::min(static_cast<double>(a[i]), 0.75);
    const double u = std::clamp(static_cast<double>(b[i]), -0.75, 0.75);
    near(i, g / (1 + std::exp(-static_cast<double>(1.702f) * g)) * (u + 1));
  }
  k.add_scaled(a.data(), b.data(), 0.5f, 53, out.data());
  for (std::size_t i = 0; i < 53; ++i) near(i, static_cast<double>(a[i]) + 0.5 * static_cast<double>(b[i]));
  k.scale_by(a.data(), 2, b.data(), 1, 53, out.data());
  for (std::size_t i = 0; i < 53; ++i) near(i, 2 * a[i] * (1 + static_cast<double>(b[i])));
  double dot = 0;
  for (std::size_t i = 0; i < 53; ++i) dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  EXPECT_NEAR(k.dot(a.data(), b.data(), 53), dot, 1e-4);
}

TEST(Functions, GiveTheSameBitsEverywhere) {
  for (const std::int64_t count : {1, 15, 16, 17, 64, 131}) {
    const std::vector<float> a = normals(count, 3, 20), b = normals(count, 4);
    const auto run = [&](const Kernels& k) {
      std::vector<float> all;
      std::vector<float> out(static_cast<std::size_t>(count));
      const auto keep = [&] { all.insert(all.end(), out.begin(), out.end()); };
      k.silu_times(a.data(), b.data(), count, out.data()), keep();
      k.clamped_silu_times(a.data(), b.data(), 1.702f, 7, count, out.data()), keep();
      k.sigmoid_times(a.data(), b.data(), count, out.data()), keep();
      k.add_rows(a.data(), b.data(), count, out.data()), keep();
      k.add_scaled(a.data(), b.data(), 0.3f, count, out.data()), keep();
      k.scale_by(a.data(), 1.7f, b.data(), 1, count, out.data()), keep();
      k.exponentials(a.data(), count, out.data()), keep();
      const float* rows[] = {nullptr, a.data(), b.data()};
      const std::vector<float> taps = normals(3 * count, 5);
      k.convolve(rows, taps.data(), count, 3, count, out.data()), keep();
      all.push_back(k.dot(a.data(), b.data(), count));
      return all;
    };
    for_each_isa([&](const Kernels& k) { EXPECT_EQ(run(k), run(plain())) << count; });
  }
}

}  // namespace
}  // namespace fourfold::cpu
