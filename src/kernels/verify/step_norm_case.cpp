// The proofs of the row norms and of the gated sum: plain f32 operations in a fixed order, so bit for bit.
#include <cmath>
#include <vector>

#include "base/bf16.h"
#include "base/format.h"
#include "kernels/dense/norm_rows.h"
#include "kernels/dense/reference.h"
#include "kernels/step/step_params.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

constexpr float kEpsilon = 1e-6f;

struct NormInputs {
  int rows = 0, columns = 0;
  std::vector<float> x, weight;
};

// Rows of very different sizes; epsilon decides the smallest. Columns below, at and beyond a piece.
NormInputs norm_inputs(StepRun& run) {
  constexpr int columns[] = {320, 2048, 64, 8192};
  NormInputs in;
  in.rows = 3 + run.below(3);
  in.columns = run.test().variant < 4 ? columns[run.test().variant] : 64 * (1 + run.below(64));
  if (run.test().large) {
    in.rows = run.large_shape().prompt_rows;
    in.columns = run.large_shape().hidden;
  }
  for (int row = 0; row < in.rows; ++row) {
    const auto values = run.normals(static_cast<std::size_t>(in.columns), row % 3 == 1 ? 1e-3 : 3.0);
    in.x.insert(in.x.end(), values.begin(), values.end());
  }
  for (int c = 0; c < in.columns; ++c)
    in.weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  run.result().shape = fourfold::format("{} rows of {}", in.rows, in.columns);
  return in;
}

Scaled scaled(const dense::NormedValue& normed) {
  return {normed.bits, normed.value, normed.error + 0x1p-149};
}

void compare_row(StepRun& run, const std::vector<std::uint16_t>& got, std::size_t at,
                 const std::vector<dense::NormedValue>& want) {
  for (std::size_t c = 0; c < want.size(); ++c) compare_bf16(run.result(), got[at + c], scaled(want[c]));
}

// What is added to x, as the kernel reads it and as numbers.
struct Addend {
  const void* device = nullptr;
  std::vector<float> values;
};
Addend make_addend(StepRun& run, std::size_t count, bool bf16) {
  Addend addend;
  addend.values = run.normals(count);
  if (!bf16) {
    addend.device = run.upload(addend.values, "y");
    return addend;
  }
  std::vector<Bf16> halves;
  for (float& value : addend.values) {
    halves.push_back(to_bf16(value));
    value = to_float(halves.back());
  }
  addend.device = run.upload(halves, "y");
  return addend;
}

}  // namespace

void prove_norm_rows(StepRun& run) {
  const NormInputs in = norm_inputs(run);
  const std::size_t columns = static_cast<std::size_t>(in.columns);
  dense::NormParams params{};
  params.x = run.upload(in.x, "x");
  params.weight = run.upload(in.weight, "weight");
  params.out = run.take<std::uint16_t>(in.x.size(), "normed");
  params.epsilon = kEpsilon;
  params.columns = in.columns;
  params.add = run.test().op == "norm"      ? dense::NormAdd::none
               : run.test().op == "add_f32" ? dense::NormAdd::f32
                                            : dense::NormAdd::bf16;
  std::vector<float> sum = in.x;
  if (params.add != dense::NormAdd::none) {
    const Addend y = make_addend(run, in.x.size(), params.add == dense::NormAdd::bf16);
    params.y = y.device;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = Host::add(sum[i], y.values[i]);
  }
  run.launch(run.test().row.row, in.rows, params);
  const auto out = run.written(params.out, in.x.size());
  const auto x = run.written(params.x, in.x.size());
  for (std::size_t i = 0; i < sum.size(); ++i) run.compare_bits(x[i], sum[i]);
  for (std::size_t at = 0; at < sum.size(); at += columns)
    compare_row(run, out, at,
                dense::normed_row<Host>(sum.data() + at, in.weight.data(), in.columns, kEpsilon));
}

void prove_select_norm(StepRun& run) {
  const NormInputs in = norm_inputs(run);
  const std::size_t columns = static_cast<std::size_t>(in.columns), stride = columns + 8;
  // Some rows, one of them twice, to places in another order.
  std::vector<std::int32_t> from, to;
  const int count = in.rows + 1;
  for (int i = 0; i < count; ++i) {
    from.push_back((3 * i + 1) % in.rows);
    to.push_back(count - 1 - i);
  }
  const bool given = run.test().variant != 1;  // else row i to row i
  const int rows = given ? count : in.rows;
  step::SelectNormParams params{};
  params.x = run.upload(in.x, "x");
  params.in_rows = given ? run.upload(from, "in rows") : nullptr;
  params.out_rows = given ? run.upload(to, "out rows") : nullptr;
  params.weight = run.upload(in.weight, "weight");
  params.epsilon = kEpsilon;
  params.columns = in.columns;
  params.out_stride = static_cast<std::int64_t>(stride);
  if (run.test().op != "f32")
    params.out = run.take<std::uint16_t>(static_cast<std::size_t>(rows) * stride, "normed");
  if (run.test().op != "bf16")
    params.out_f32 = run.take<float>(static_cast<std::size_t>(rows) * columns, "normed f32");
  run.launch(run.test().row.row, rows, params);
  for (int i = 0; i < rows; ++i) {
    const std::size_t source = static_cast<std::size_t>(given ? from[i] : i) * columns;
    const auto want = dense::normed_row<Host>(in.x.data() + source, in.weight.data(), in.columns, kEpsilon);
    if (params.out) compare_row(run, run.written(params.out + i * params.out_stride, columns), 0, want);
    if (params.out_f32 == nullptr) continue;
    const auto got =
        run.written(params.out_f32 + static_cast<std::int64_t>(given ? to[i] : i) * in.columns, columns);
    for (std::size_t c = 0; c < columns; ++c) run.compare_f32(got[c], scaled(want[c]));
  }
}

// x + sigmoid(g) y: sigmoid's error for |g| below 8 (functions.h), the product's and the sum's rounding.
void prove_add_gated(StepRun& run) {
  constexpr int columns_of[] = {200, 2048, 8};
  int rows = 1 + run.below(5);
  int columns = run.test().variant < 3 ? columns_of[run.test().variant] : 8 * (1 + run.below(300));
  if (run.test().large) {
    rows = run.large_shape().prompt_rows;
    columns = run.large_shape().hidden;
  }
  const std::size_t count = static_cast<std::size_t>(rows * columns);
  run.result().shape = fourfold::format("{} rows of {}", rows, columns);
  const std::vector<float> before = run.normals(count, 10.0);
  const bool gated = run.test().op != "ungated", bf16 = run.test().op == "bf16";
  const Addend y = make_addend(run, count, bf16);
  std::vector<float> gates = run.normals(static_cast<std::size_t>(rows) * 3, 2.0);
  for (float& gate : gates) gate = std::fmin(std::fmax(gate, -8.0f), 8.0f);
  step::AddGatedParams params{};
  params.x = run.upload(before, "x");
  params.y = y.device;
  params.gate = gated ? run.upload(gates, "gates") : nullptr;
  params.gate_stride = 3;
  params.rows = rows;
  params.columns = columns;
  params.y_is_f32 = bf16 ? 0 : 1;
  run.launch(run.test().row.row, step::add_blocks(rows, columns), params);
  const auto got = run.written(params.x, count);
  for (std::size_t i = 0; i < count; ++i) {
    const float gate = gates[3 * (i / static_cast<std::size_t>(columns))];
    const float factor = gated ? device::sigmoid<Host>(gate) : 1.0f;
    const double open = gated ? 1.0 / (1.0 + std::exp(-double{gate})) : 1.0;
    const double product = open * double{y.values[i]}, value = double{before[i]} + product;
    const double slack = std::abs(product) * (0x1p-21 + 8 * 0x1p-23 + 0x1p-24);
    run.compare_f32(got[i], {Host::add(before[i], Host::mul(factor, y.values[i])), value,
                             slack + (std::abs(value) + slack) * 0x1p-24});
  }
}

}  // namespace fourfold::verify
