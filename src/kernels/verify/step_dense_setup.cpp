#include "kernels/verify/step_dense_setup.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "kernels/dense/dense_table_params.h"
#include "kernels/dense/reference.h"
#include "kernels/record/pack.h"

namespace fourfold::verify {
namespace {

constexpr float kUntouched = -77.0f;

// Of rows that keep K in registers, dense_table's among them (dense/dense_near.h): no waves.
constexpr int kNearColumns = 8 * moe::kSegmentColumns;
bool is_near(const StepRun& run) {
  return run.test().row.kernel == "dense_near" || run.test().row.kernel == dense::kDenseTable;
}
bool norms_tokens(const StepRun& run) { return run.test().row.norms_rows; }

void append(std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void make_fp4_weights(StepRun& run, DenseSetup& setup) {
  setup.decode_factor = half_decode_factor(false);
  CheckpointMatrix matrix[3];
  for (int part = 0; part < 3; ++part)
    if (setup.rows_of(part) > 0) {
      matrix[part] = random_matrix(run.random, setup.rows_of(part), setup.columns, false);
      setup.parts[part] = reference_of(matrix[part]);
    }
  const auto bytes_of = [](const CheckpointMatrix& from) {
    return record::MatrixBytes{from.codes.data(), from.scales.data()};
  };
  const std::size_t plain_bytes = record::packed_bytes<record::Nvfp4>(setup.plain, setup.columns);
  setup.records.resize(plain_bytes + record::packed_bytes<record::Nvfp4>(2 * setup.neurons, setup.columns));
  if (setup.plain > 0)
    record::pack_records<record::Nvfp4>({bytes_of(matrix[0]),
                                         {},
                                         setup.records.data(),
                                         setup.plain,
                                         setup.columns,
                                         record::RowOrder::plain,
                                         record::BitOrder::half});
  if (setup.neurons > 0)
    record::pack_records<record::Nvfp4>({bytes_of(matrix[1]), bytes_of(matrix[2]),
                                         setup.records.data() + plain_bytes, 2 * setup.neurons, setup.columns,
                                         record::RowOrder::gate_up, record::BitOrder::half});
}

// Tokens as bf16 rows, or as rows of the residual stream whose norm gives them.
void make_tokens(StepRun& run, DenseSetup& setup, bool norms) {
  if (!norms) {
    setup.token_rows = random_tokens(run.random, setup.tokens, setup.columns);
    return;
  }
  for (int i = 0; i < setup.tokens; ++i) {
    const auto values = run.normals(static_cast<std::size_t>(setup.columns), i % 4 == 1 ? 1e-3 : 3.0);
    setup.x.insert(setup.x.end(), values.begin(), values.end());
  }
  for (int c = 0; c < setup.columns; ++c)
    setup.norm_weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  for (int i = 0; i < setup.tokens; ++i)
    for (const auto& value : dense::normed_row<Host>(setup.x.data() + i * setup.columns,
                                                     setup.norm_weight.data(), setup.columns, kDenseEpsilon))
      setup.token_rows.push_back(Bf16{bf16_bits(value.bits)});
}

constexpr float kScales[3] = {0.75f, 1.5f, 0.3f};

// Row `row` of a part times a token, with every factor.
Scaled scaled_dot(const DenseSetup& setup, int part, int row, int token) {
  const Bf16* tokens = setup.token_rows.data() + std::int64_t{token} * setup.columns;
  const Scaled sum = scale_dot(reference::dot_w4a16(setup.parts[part], row, tokens, reference::Order::decode),
                               {kScales[part], kScales[part]}, {}, setup.decode_factor);
  const int first = part == 0 ? 0 : setup.plain + (part - 1) * setup.neurons;
  return setup.row_scale.empty() ? sum : weighted(sum, setup.row_scale[first + row]);
}

// A bias is added to what is there before, or is it.
Scaled biased(const DenseSetup& setup, const Scaled& sum, int row) {
  const float bias = setup.bias[static_cast<std::size_t>(row)];
  const double value = sum.value + bias;
  return {Host::add(bias, sum.bits), value, sum.bound + (std::abs(value) + sum.bound) * 0x1p-24 + 0x1p-149};
}

// The residual stream: times the gate's sigmoid where there is one (|gate| <= 6: 2^-21 + 6 * 2^-23), one
// addition.
Scaled added(const DenseSetup& setup, Scaled sum, int row, int token) {
  if (!setup.gate.empty()) {
    const float gate = setup.gate[2 * token];
    const double open = 1.0 / (1.0 + std::exp(-double{gate})), value = sum.value * open;
    sum = {Host::mul(device::sigmoid<Host>(gate), sum.bits), value,
           sum.bound * open + std::abs(value) * (0x1p-20 + 0x1p-22)};
  }
  float before = setup.before[token * setup.plain + row];
  double value = sum.value + before;
  if (!setup.bias.empty()) {
    const float bias = setup.bias[static_cast<std::size_t>(row)];
    value += bias;
    before = Host::add(before, bias);
    sum.bound += std::abs(before) * 0x1p-23;
  }
  return {Host::add(before, sum.bits), value, sum.bound + (std::abs(value) + sum.bound) * 0x1p-24 + 0x1p-149};
}

void check_plain(StepRun& run, const DenseSetup& setup, dense::PlainOp op, const void* out) {
  const std::size_t stride = static_cast<std::size_t>(setup.out_stride());
  for (const int token : run.sample(setup.tokens, 12)) {
    std::vector<float> wide;
    std::vector<std::uint16_t> half;
    if (op == dense::PlainOp::store_bf16)
      half = run.written(static_cast<const std::uint16_t*>(out) + token * stride, stride);
    else
      wide = run.written(static_cast<const float*>(out) + token * stride, stride);
    for (const int row : run.sample(setup.plain, 256)) {
      const Scaled sum = scaled_dot(setup, 0, row, token);
      if (op == dense::PlainOp::store_bf16)
        compare_bf16(run.result(), half[row], sum);
      else
        run.compare_f32(wide[row], op == dense::PlainOp::add_f32 ? added(setup, sum, row, token)
                                   : setup.bias.empty()          ? sum
                                                                 : biased(setup, sum, row));
    }
    for (int c = setup.plain; c < setup.out_stride(); ++c)
      run.compare_exact(half.empty() ? wide[c] : bf16_value(half[c]), kUntouched);
  }
}

void check_neurons(StepRun& run, const DenseSetup& setup, const std::uint16_t* out) {
  if (setup.neurons == 0) return;
  for (const int token : run.sample(setup.tokens, 12)) {
    const auto got = run.written(out + token * setup.neurons, static_cast<std::size_t>(setup.neurons));
    for (const int neuron : run.sample(setup.neurons, 128))
      compare_bf16(run.result(), got[neuron],
                   swiglu_of(scaled_dot(setup, 1, neuron, token), scaled_dot(setup, 2, neuron, token)));
  }
}

// The output with what lies beside the matrix's columns, and what add_f32 finds there.
template <class T>
T* upload_out(StepRun& run, const DenseSetup& setup, T untouched) {
  std::vector<T> out(static_cast<std::size_t>(setup.tokens * setup.out_stride()), untouched);
  if constexpr (std::is_same_v<T, float>)
    for (int token = 0; token < setup.tokens; ++token)
      std::copy_n(setup.before.begin() + token * setup.plain, setup.plain,
                  out.begin() + token * setup.out_stride());
  return run.upload(out, "out");
}

}  // namespace

// Biases are for results in f32: of rows that are stored, and in every other proof of those that are added.
dense::PlainOp plain_op(const StepCase& test) {
  if (test.op == "biased" && !test.row.norms_rows &&
      (test.variant % 2 == 1 || test.row.kernel == "dense_sum_norm"))
    return dense::PlainOp::add_f32;
  if (test.op == "add_f32") return dense::PlainOp::add_f32;
  return test.op == "store_bf16" ? dense::PlainOp::store_bf16 : dense::PlainOp::store_f32;
}

// Of the 35B and of a rank of four of the 397B: the projections into DeltaNet, or the shared expert beside
// its gate; the way back into the residual stream.
void shape_large(StepRun& run, DenseSetup& setup, int tokens) {
  const LargeShape& shape = run.large_shape();
  setup.columns = shape.hidden;
  setup.tokens = tokens;
  if (run.test().op == "gate_up") {
    setup.neurons = shape.neurons;
    setup.plain = 32;
  } else if (plain_op(run.test()) == dense::PlainOp::add_f32) {
    setup.plain = shape.hidden;
    setup.columns = shape.mixed;
  } else {
    setup.plain = shape.projections;
  }
}

void shape_dense(StepRun& run, DenseSetup& setup) {
  if (run.test().large) {
    shape_large(run, setup, run.test().variant == 1 ? 1 : dense::kTokens);
    if (is_near(run)) setup.columns = std::min(setup.columns, kNearColumns);
    if (!norms_tokens(run)) return;
    // What a row norms itself (dense/choose.h): a segment a warp, and tokens that leave enough of the ring.
    setup.columns = std::min(setup.columns, run.test().row.threads / 32 * moe::kSegmentColumns);
    setup.tokens = std::min(setup.tokens, setup.columns > 2'048 ? 3 : dense::kTokens);
    return;
  }
  const bool gate_up = run.test().op == "gate_up";
  const bool norms = norms_tokens(run);
  const auto take = [&](int plain, int neurons, int columns, int tokens) {
    setup.plain = plain;
    setup.neurons = gate_up ? neurons : 0;
    setup.columns = columns;
    setup.tokens = tokens;
  };
  switch (run.test().variant) {
    case 0:  // a ragged end of K, units that do not divide the grid
      return take(gate_up ? 32 : 160, 64, 576, 3);
    case 1:  // everything once
      return take(gate_up ? 0 : 32, 32, 64, 1);
    case 2:  // several segments, many tokens; K in waves where the tokens are given
      return take(32, 32, norms ? 1344 : is_near(run) ? kNearColumns - 64 : 4672, norms ? 8 : 2);
  }
  // One token alone has code of its own, as given and as normed.
  take(32 * (run.below(3) + (gate_up ? 0 : 1)), 32 * (1 + run.below(2)), 64 * (1 + run.below(16)),
       run.test().variant == 3 ? 1 : 1 + run.below(dense::kTokens));
}

void make_wide_weights(StepRun& run, DenseSetup& setup, record::DenseSource source) {
  DenseMatrix matrix[3];
  for (int part = 0; part < 3; ++part)
    if (setup.rows_of(part) > 0) {
      matrix[part] = random_dense(run.random, setup.rows_of(part), setup.columns, source);
      setup.parts[part] = reference_of(matrix[part]);
    }
  if (setup.plain > 0) append(setup.records, pack_dense(matrix[0]));
  if (setup.neurons > 0) append(setup.records, pack_dense(matrix[1], matrix[2]));
}

// Numbers for a setup whose sizes are known.
void fill_setup(StepRun& run, DenseSetup& setup) {
  const std::string_view format = run.test().row.format;
  if (format == "nvfp4")
    make_fp4_weights(run, setup);
  else
    make_wide_weights(run, setup, format == "fp8" ? record::DenseSource::e4m3 : record::DenseSource::bf16);
  make_tokens(run, setup, norms_tokens(run));
  if (format == "fp8" || run.test().variant % 2 == 1)
    for (int row = 0; row < setup.rows(); ++row)
      setup.row_scale.push_back(static_cast<float>(run.random.uniform(0.5, 2.0)));
  setup.before = run.normals(static_cast<std::size_t>(setup.tokens * setup.plain), 100.0);
  if (run.test().op == "biased") setup.bias = run.normals(static_cast<std::size_t>(setup.plain), 30.0);
  if (run.test().variant % 2 == 0)
    for (int i = 0; i < 2 * setup.tokens; ++i)
      setup.gate.push_back(static_cast<float>(run.random.uniform(-6.0, 6.0)));
  run.result().shape = fourfold::format("{}x{} tokens {}", setup.rows(), setup.columns, setup.tokens);
}

// Everything of the case on the machine.
dense::DenseParams upload_case(StepRun& run, const DenseSetup& setup) {
  const bool norms = !setup.x.empty();
  dense::DenseParams params{};
  params.op = plain_op(run.test());
  params.weights = run.upload(setup.records, "weights");
  params.tokens = norms ? static_cast<const void*>(run.upload(setup.x, "x"))
                        : static_cast<const void*>(run.upload(setup.token_rows, "tokens"));
  params.norm_weight = norms ? run.upload(setup.norm_weight, "norm weight") : nullptr;
  params.epsilon = kDenseEpsilon;
  params.row_scale = setup.row_scale.empty() ? nullptr : run.upload(setup.row_scale, "row scales");
  if (params.op == dense::PlainOp::store_bf16)
    params.out = upload_out<std::uint16_t>(run, setup, bf16_bits(kUntouched));
  else
    params.out = upload_out<float>(run, setup, kUntouched);
  params.gate_up_out =
      run.take<std::uint16_t>(static_cast<std::size_t>(setup.tokens * setup.neurons), "pairs");
  if (norms) params.normed_out = run.take<std::uint16_t>(setup.x.size(), "normed");
  if (params.op == dense::PlainOp::add_f32 && !setup.gate.empty())
    params.token_gate = run.upload(setup.gate, "gates");
  params.token_gate_stride = 2;
  params.scale = kScales[0];
  params.scale_gate = kScales[1];
  params.scale_up = kScales[2];
  params.strips = setup.rows() / record::kRows;
  params.plain_strips = setup.plain / record::kRows;
  params.records = setup.columns / record::kColumns;
  params.token_count = setup.tokens;
  params.token_stride = setup.columns;
  params.out_stride = setup.out_stride();
  params.gate_up_stride = setup.neurons;
  params.bias = setup.bias.empty() ? nullptr : run.upload(setup.bias, "bias");
  return params;
}

float added_sum(const DenseSetup& setup, int row, int token) {
  return added(setup, scaled_dot(setup, 0, row, token), row, token).bits;
}

void check_case(StepRun& run, const DenseSetup& setup, const dense::DenseParams& params) {
  check_plain(run, setup, params.op, params.out);
  check_neurons(run, setup, params.gate_up_out);
}

}  // namespace fourfold::verify
