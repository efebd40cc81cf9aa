// add_gated on the simulator, bit by bit: x + sigmoid(gate) * y.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/launch/sim_row.h"
#include "kernels/step/rows.h"

namespace fourfold::step {
namespace {

using Arch = plan::Sm120;
using Host = device::SimCta;

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* memory = device.allocate_array<T>(values.size(), name);
  device.write_from_host(memory, values.data(), values.size() * sizeof(T));
  return memory;
}

void check(int rows, int columns, bool f32, bool gated, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns << (f32 ? " f32" : " bf16") << ", gated "
                                  << gated);
  constexpr int gate_stride = 5, rows_behind = 1;
  Random random(seed);
  std::vector<float> x, y, gates;
  std::vector<Bf16> y_half;
  for (int i = 0; i < (rows + rows_behind) * columns; ++i) {
    x.push_back(static_cast<float>(random.normal() * 10.0));
    y_half.push_back(to_bf16(static_cast<float>(random.normal())));
    y.push_back(f32 ? static_cast<float>(random.normal()) : to_float(y_half.back()));
  }
  for (int i = 0; i < rows * gate_stride; ++i) gates.push_back(static_cast<float>(random.uniform(-8.0, 8.0)));
  sim::Device device;
  device.set_seed(seed);
  AddGatedParams params{};
  params.x = upload(device, x, "x");
  params.y = f32 ? static_cast<const void*>(upload(device, y, "y")) : upload(device, y_half, "y");
  params.gate = gated ? upload(device, gates, "gates") : nullptr;
  params.gate_stride = gate_stride;
  params.rows = rows;
  params.columns = columns;
  params.y_is_f32 = f32 ? 1 : 0;
  kernels::run_on_sim<AddGatedRow<Arch>>(device, add_blocks(rows, columns), params);
  std::vector<float> got(x.size());
  device.read_to_host(got.data(), params.x, got.size() * 4);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(columns);
    if (row >= static_cast<std::size_t>(rows)) {  // behind the last row nothing is touched
      ASSERT_EQ(got[i], x[i]) << i;
      continue;
    }
    const float gate = gates[gate_stride * row];
    const float factor = gated ? device::sigmoid<Host>(gate) : 1.0f;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]),
              std::bit_cast<std::uint32_t>(Host::add(x[i], Host::mul(factor, y[i]))))
        << i;
    // sigmoid's own error for |gate| <= 8, the product's and the sum's rounding.
    const double open = gated ? 1.0 / (1.0 + std::exp(-double{gate})) : 1.0;
    const double product = open * y[i], value = double{x[i]} + product;
    const double slack = std::abs(product) * (0x1p-21 + 8 * 0x1p-23 + 0x1p-24);
    ASSERT_LE(std::abs(got[i] - value), slack + (std::abs(value) + slack) * 0x1p-24) << i;
  }
}

TEST(AddGated, AddsGatedRows) {
  std::uint64_t seed = 1;
  for (const bool f32 : {false, true})
    for (const bool gated : {false, true})
      for (const int columns : {8, 200, 2048}) check(3, columns, f32, gated, seed++);
}

// A grid of one block and one of several; rows that end inside a block.
TEST(AddGated, TakesAnyNumberOfRows) {
  EXPECT_EQ(add_blocks(1, 2048), 1);
  EXPECT_EQ(add_blocks(9, 2048), 9);
  EXPECT_EQ(add_blocks(3, 200), 1);
  EXPECT_EQ(add_blocks(11, 200), 2);
  check(1, 64, true, true, 20);
  check(11, 200, false, true, 21);
}

}  // namespace
}  // namespace fourfold::step
