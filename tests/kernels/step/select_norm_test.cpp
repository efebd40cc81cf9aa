// select_norm on the simulator: rows by index, against the scalar norm bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/dense/reference.h"
#include "kernels/dense/rows.h"
#include "kernels/launch/sim_row.h"
#include "kernels/step/rows.h"

namespace fourfold::step {
namespace {

using Arch = plan::Sm120;
using Host = device::SimCta;

constexpr float kEpsilon = 1e-6f;
constexpr float kUntouched = -7.0f;

struct Case {
  int rows = 4, columns = 320;
  std::vector<std::int32_t> from = {}, to = {};  // empty: row i
  bool bf16 = true, f32 = true;
  std::uint64_t seed = 1;
};

struct Outcome {
  std::vector<float> x, weight;
  std::vector<std::uint16_t> out;  // [count, columns + 8]
  std::vector<float> out_f32;      // [places, columns]
};

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* memory = device.allocate_array<T>(values.size(), name);
  device.write_from_host(memory, values.data(), values.size() * sizeof(T));
  return memory;
}

Outcome run(const Case& test) {
  Outcome outcome;
  Random random(test.seed);
  const int count = test.from.empty() ? test.rows : static_cast<int>(test.from.size());
  const int places = std::max(test.rows, count) + 1, stride = test.columns + 8;
  for (int row = 0; row < test.rows; ++row)
    for (int c = 0; c < test.columns; ++c)
      outcome.x.push_back(static_cast<float>(random.normal() * (row % 2 == 0 ? 3.0 : 1e-3)));
  for (int c = 0; c < test.columns; ++c)
    outcome.weight.push_back(static_cast<float>(1.0 + 0.2 * random.normal()));
  sim::Device device;
  device.set_seed(test.seed);
  SelectNormParams params{};
  params.x = upload(device, outcome.x, "x");
  params.in_rows = test.from.empty() ? nullptr : upload(device, test.from, "in rows");
  params.weight = upload(device, outcome.weight, "weight");
  params.epsilon = kEpsilon;
  params.columns = test.columns;
  params.out_stride = stride;
  params.out_rows = test.to.empty() ? nullptr : upload(device, test.to, "out rows");
  outcome.out.assign(static_cast<std::size_t>(count * stride), to_bf16(kUntouched).bits);
  outcome.out_f32.assign(static_cast<std::size_t>(places * test.columns), kUntouched);
  auto* out = upload(device, outcome.out, "out");
  auto* out_f32 = upload(device, outcome.out_f32, "out f32");
  params.out = test.bf16 ? out : nullptr;
  params.out_f32 = test.f32 ? out_f32 : nullptr;
  const auto stats = kernels::run_on_sim<SelectNormRow<Arch>>(device, count, params);
  for (const auto& site : stats.traffic)
    EXPECT_EQ(site.wavefronts, site.ideal) << site.file << ":" << site.line;
  device.read_to_host(outcome.out.data(), out, outcome.out.size() * 2);
  device.read_to_host(outcome.out_f32.data(), out_f32, outcome.out_f32.size() * 4);
  return outcome;
}

void check(const Case& test) {
  SCOPED_TRACE(testing::Message() << test.columns << " columns, seed " << test.seed);
  const Outcome got = run(test);
  const int count = test.from.empty() ? test.rows : static_cast<int>(test.from.size());
  std::vector<bool> written(got.out_f32.size());
  for (int i = 0; i < count; ++i) {
    const int from = test.from.empty() ? i : test.from[i], to = test.to.empty() ? i : test.to[i];
    const auto want = dense::normed_row<Host>(got.x.data() + from * test.columns, got.weight.data(),
                                              test.columns, kEpsilon);
    for (int c = 0; c < test.columns; ++c) {
      const std::size_t half = static_cast<std::size_t>(i * (test.columns + 8) + c),
                        full = static_cast<std::size_t>(to * test.columns + c);
      ASSERT_EQ(got.out[half], to_bf16(test.bf16 ? want[c].bits : kUntouched).bits) << i << " " << c;
      if (!test.f32) continue;
      written[full] = true;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got.out_f32[full]), std::bit_cast<std::uint32_t>(want[c].bits))
          << i << " " << c;
      ASSERT_LE(std::abs(got.out_f32[full] - want[c].value), want[c].error);
    }
    for (int c = test.columns; c < test.columns + 8; ++c)
      ASSERT_EQ(got.out[static_cast<std::size_t>(i * (test.columns + 8) + c)], to_bf16(kUntouched).bits);
  }
  for (std::size_t i = 0; i < written.size(); ++i)
    if (!written[i]) {
      ASSERT_EQ(got.out_f32[i], kUntouched) << i;
    }
}

TEST(SelectNorm, NormsEveryRowInPlace) {
  std::uint64_t seed = 1;
  for (const int columns : {64, 256, 320, 2048, 8192}) check({.rows = 3, .columns = columns, .seed = seed++});
}

TEST(SelectNorm, PicksAndPlacesRows) {
  check({.from = {3, 0, 0}, .to = {1, 4, 0}, .seed = 10});
  check({.columns = 576, .from = {2}, .to = {3}, .f32 = false, .seed = 11});
  check({.columns = 64, .from = {1, 1, 3, 0, 2}, .to = {4, 3, 2, 1, 0}, .bf16 = false, .seed = 12});
  check({.to = {3, 2, 1, 0}, .seed = 13});
}

// The norm of every other kernel, bit by bit.
TEST(SelectNorm, HasTheBitsOfNormRows) {
  const Outcome got = run({.rows = 2, .columns = 1344, .seed = 20});
  sim::Device device;
  const dense::NormParams params{upload(device, got.x, "x"),
                                 nullptr,
                                 upload(device, got.weight, "weight"),
                                 device.allocate_array<std::uint16_t>(got.x.size(), "out"),
                                 kEpsilon,
                                 dense::NormAdd::none,
                                 1344};
  kernels::run_on_sim<dense::NormRow<Arch>>(device, 2, params);
  std::vector<std::uint16_t> want(got.x.size());
  device.read_to_host(want.data(), params.out, want.size() * 2);
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got.out[i / 1344 * 1352 + i % 1344], want[i]) << i;
}

}  // namespace
}  // namespace fourfold::step
