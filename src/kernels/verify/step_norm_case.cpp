// The proofs of the row norms and of the gated sum: plain f32 operations in a fixed order, so bit for bit.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/bf16.h"
#include "base/format.h"
#include "base/fp8_rows.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/reference.h"
#include "kernels/moe/epilogue.h"
#include "kernels/record/record.h"
#include "kernels/step/step_params.h"
#include "kernels/verify/inputs.h"
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

void compare_staged(StepRun& run, const std::vector<std::uint16_t>& got, std::size_t at,
                    const std::vector<dense::NormedValue>& want) {
  for (std::size_t c = 0; c < want.size(); ++c) {
    const int pair = moe::staged_pair(static_cast<int>(c / 2));
    compare_bf16(run.result(), got[at + 2 * static_cast<std::size_t>(pair) + c % 2], scaled(want[c]));
  }
}

dense::NormAdd add_of(std::string_view op) {
  return op == "norm" ? dense::NormAdd::none : op == "add_f32" ? dense::NormAdd::f32 : dense::NormAdd::bf16;
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

// The codes of a row, and its factor where it has one of its own: exact.
void compare_codes(StepRun& run, const std::vector<Bf16>& row, const std::uint8_t* codes, const float* factor,
                   float inverse) {
  float largest = 0.0f;
  for (const Bf16 value : row) largest = Host::max(largest, Host::abs(to_float(value)));
  const Fp8RowFactor own = fp8_row_factor(largest);
  if (factor != nullptr) run.compare_bits(*factor, own.factor);
  for (std::size_t c = 0; c < row.size(); ++c) {
    const E4m3 want = to_e4m3(to_float(row[c]) * (factor != nullptr ? own.inverse : inverse));
    const std::uint8_t got = codes[record::fp8_token_byte(static_cast<int>(c))];
    run.compare_bits(to_float(E4m3{got}), to_float(want));
  }
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
  params.add = add_of(run.test().op);
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

void prove_norm_prompt(StepRun& run) {
  const NormInputs in = norm_inputs(run);
  const std::size_t columns = static_cast<std::size_t>(in.columns), count = in.x.size();
  dense::NormPromptParams params{};
  params.norm.x = run.upload(in.x, "x");
  params.norm.weight = run.upload(in.weight, "weight");
  params.norm.epsilon = kEpsilon;
  params.norm.columns = in.columns;
  params.norm.add = add_of(run.test().op);
  // Each form is left out once.
  dense::PromptRows& rows = params.rows;
  if (run.test().op != "add_f32") rows.plain = run.take<std::uint16_t>(count, "plain");
  if (run.test().op != "add_bf16") rows.staged = run.take<std::uint16_t>(count, "staged");
  rows.codes = run.take<std::uint8_t>(count, "codes");
  rows.inverse = run.test().variant == 1 ? 96.0f : 0.0f;
  if (rows.inverse == 0.0f) rows.factor = run.take<float>(static_cast<std::size_t>(in.rows), "factors");
  std::vector<float> sum = in.x;
  if (params.norm.add != dense::NormAdd::none) {
    const Addend y = make_addend(run, count, params.norm.add == dense::NormAdd::bf16);
    params.norm.y = y.device;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = Host::add(sum[i], y.values[i]);
  }
  run.launch(run.test().row.row, in.rows, params);
  const auto plain = rows.plain ? run.written(rows.plain, count) : std::vector<std::uint16_t>{};
  const auto staged = rows.staged ? run.written(rows.staged, count) : std::vector<std::uint16_t>{};
  const auto codes = run.written(rows.codes, count);
  const auto factors =
      rows.factor ? run.written(rows.factor, static_cast<std::size_t>(in.rows)) : std::vector<float>{};
  for (std::size_t at = 0; at < count; at += columns) {
    const auto want = dense::normed_row<Host>(sum.data() + at, in.weight.data(), in.columns, kEpsilon);
    if (rows.plain) compare_row(run, plain, at, want);
    std::vector<Bf16> row;
    for (const dense::NormedValue& value : want) row.push_back(to_bf16(value.bits));
    if (rows.staged) compare_staged(run, staged, at, want);
    compare_codes(run, row, codes.data() + at, rows.factor ? &factors[at / columns] : nullptr, rows.inverse);
  }
}

// Every byte of the records is what quantising the normed rows one by one gives, the rows that the last eight
// lack being zeros. The second scale is left out once.
void prove_norm_fp4(StepRun& run) {
  const NormInputs in = norm_inputs(run);
  const std::size_t columns = static_cast<std::size_t>(in.columns), count = in.x.size();
  dense::NormFp4Params params{};
  params.norm.x = run.upload(in.x, "x");
  params.norm.weight = run.upload(in.weight, "weight");
  params.norm.epsilon = kEpsilon;
  params.norm.columns = in.columns;
  params.norm.add = add_of(run.test().op);
  params.row_count = in.rows;
  if (run.test().op != "add_f32") params.rows.plain = run.take<std::uint16_t>(count, "plain");
  if (run.test().op != "add_bf16") params.rows.staged = run.take<std::uint16_t>(count, "staged");
  const int rows = dense::norm_fp4_blocks(in.rows);
  const std::size_t bytes = static_cast<std::size_t>(rows / record::kTokens) * (columns / record::kColumns) *
                            record::kTokenRecordBytes;
  constexpr float scales[dense::kFp4Sets] = {1.0f / 96, 0.02f};
  for (int set = 0; set < (run.test().op == "norm" ? 1 : dense::kFp4Sets); ++set)
    params.fp4[set] = {run.take<unsigned char>(bytes, "records"), 1.0f / scales[set]};
  std::vector<float> sum = in.x;
  if (params.norm.add != dense::NormAdd::none) {
    const Addend y = make_addend(run, count, params.norm.add == dense::NormAdd::bf16);
    params.norm.y = y.device;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = Host::add(sum[i], y.values[i]);
  }
  run.launch(run.test().row.row, rows, params);
  const auto plain = params.rows.plain ? run.written(params.rows.plain, count) : std::vector<std::uint16_t>{};
  const auto staged =
      params.rows.staged ? run.written(params.rows.staged, count) : std::vector<std::uint16_t>{};
  std::vector<Bf16> normed;
  for (std::size_t at = 0; at < count; at += columns) {
    const auto want = dense::normed_row<Host>(sum.data() + at, in.weight.data(), in.columns, kEpsilon);
    if (params.rows.plain) compare_row(run, plain, at, want);
    if (params.rows.staged) compare_staged(run, staged, at, want);
    for (const dense::NormedValue& value : want) normed.push_back(to_bf16(value.bits));
  }
  Assignment each;
  for (int row = 0; row < rows; ++row) {
    each.slot_token.push_back(row < in.rows ? row : 0);
    each.slot_expert.push_back(row < in.rows ? 0 : -1);
  }
  for (const dense::Fp4Rows& fp4 : params.fp4) {
    if (fp4.records == nullptr) continue;
    const std::vector<std::uint8_t> want =
        token_records(quantize_slots(normed, in.columns, each, {fp4.inverse}));
    const auto got = run.written(fp4.records, bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      run.compare_bits(static_cast<float>(got[i]), static_cast<float>(want[i]));
  }
}

void prove_quantize_rows(StepRun& run) {
  constexpr int columns_of[] = {320, 2048, 64, 1024};
  dense::QuantizeRowsParams params{};
  params.row_count = 3 + run.below(20);
  params.columns = run.test().variant < 4 ? columns_of[run.test().variant] : 64 * (1 + run.below(64));
  if (run.test().large) params.row_count = run.large_shape().prompt_rows;
  params.is_staged = run.test().op == "staged" ? 1 : 0;
  params.inverse = run.test().op == "scaled" ? 96.0f : 0.0f;
  const std::size_t columns = static_cast<std::size_t>(params.columns),
                    count = static_cast<std::size_t>(params.row_count) * columns;
  std::vector<Bf16> rows = random_tokens(run.random, params.row_count, params.columns);
  std::fill_n(rows.begin(), columns, Bf16{0});  // a row of zeros
  std::vector<Bf16> laid_out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = i % columns;
    const auto pair = static_cast<std::size_t>(moe::staged_pair(static_cast<int>(c / 2)));
    laid_out[params.is_staged ? i - c + 2 * pair + c % 2 : i] = rows[i];
  }
  params.rows = reinterpret_cast<const std::uint16_t*>(run.upload(laid_out, "rows"));
  params.codes = run.take<std::uint8_t>(count, "codes");
  if (params.inverse == 0.0f)
    params.factor = run.take<float>(static_cast<std::size_t>(params.row_count), "factors");
  run.result().shape = fourfold::format("{} rows of {}", params.row_count, params.columns);
  run.launch(run.test().row.row, dense::quantize_blocks(params.row_count), params);
  const auto codes = run.written(params.codes, count);
  const auto factors = params.factor ? run.written(params.factor, static_cast<std::size_t>(params.row_count))
                                     : std::vector<float>{};
  for (std::size_t at = 0; at < count; at += columns)
    compare_codes(run,
                  std::vector<Bf16>(rows.begin() + static_cast<std::ptrdiff_t>(at),
                                    rows.begin() + static_cast<std::ptrdiff_t>(at + columns)),
                  codes.data() + at, params.factor ? &factors[at / columns] : nullptr, params.inverse);
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

// Columns beside the matrix's are not touched.
void prove_add_bias(StepRun& run) {
  constexpr int columns_of[] = {200, 2880, 8};
  int rows = 1 + run.below(5);
  int columns = run.test().variant < 3 ? columns_of[run.test().variant] : 8 * (1 + run.below(300));
  if (run.test().large) {
    rows = run.large_shape().prompt_rows;
    columns = run.large_shape().hidden;
  }
  const int stride = columns + 32;
  const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(stride);
  run.result().shape = fourfold::format("{} rows of {}", rows, columns);
  const std::vector<float> before = run.normals(count, 10.0);
  const std::vector<float> bias = run.normals(static_cast<std::size_t>(columns), 3.0);
  step::AddBiasParams params{run.upload(before, "x"), run.upload(bias, "bias"), stride, rows, columns};
  run.launch(run.test().row.row, step::add_blocks(rows, columns), params);
  const auto got = run.written(params.x, count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t column = i % static_cast<std::size_t>(stride);
    run.compare_bits(got[i], column < bias.size() ? Host::add(before[i], bias[column]) : before[i]);
  }
}

}  // namespace fourfold::verify
