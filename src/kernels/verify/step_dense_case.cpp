// The proofs of the dense decode kernels: every format, epilogue and source of tokens, bit for bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format.h"
#include "kernels/dense/dense_pair.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/many_pair.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/reference.h"
#include "kernels/moe_route/launch_route.h"
#include "kernels/record/pack.h"
#include "kernels/step/dense_table_params.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/step_run.h"
#include "kernels/verify/step_tables.h"

namespace fourfold::verify {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr int kBeside = 32;  // columns of the output that belong to others
constexpr float kUntouched = -77.0f;

// `plain` rows, then `neurons` gate rows, then `neurons` up rows, each a matrix of its own.
struct DenseSetup {
  int plain = 0, neurons = 0, columns = 0, tokens = 0;
  float decode_factor = 1.0f;
  reference::Weights parts[3];
  std::vector<std::uint8_t> records;
  std::vector<float> row_scale, before, gate, x, norm_weight;
  std::vector<float> bias;       // of the plain rows, or none
  std::vector<Bf16> token_rows;  // as the tensor cores meet them
  int rows_of(int part) const { return part == 0 ? plain : neurons; }
  int rows() const { return plain + 2 * neurons; }
  int out_stride() const { return plain + kBeside; }
};

// Biases are for results in f32: of rows that are stored, and in every other proof of those that are added.
dense::PlainOp plain_op(const StepCase& test) {
  if (test.op == "biased" && !test.row.norms_rows &&
      (test.variant % 2 == 1 || test.row.kernel == "dense_sum_norm"))
    return dense::PlainOp::add_f32;
  if (test.op == "add_f32") return dense::PlainOp::add_f32;
  return test.op == "store_bf16" ? dense::PlainOp::store_bf16 : dense::PlainOp::store_f32;
}

// Of rows that keep K in registers, dense_table's among them (dense/dense_near.h): no waves.
constexpr int kNearColumns = 8 * moe::kSegmentColumns;
bool is_near(const StepRun& run) {
  return run.test().row.kernel == "dense_near" || run.test().row.kernel == step::kDenseTable;
}
bool norms_tokens(const StepRun& run) { return run.test().row.norms_rows; }

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

void append(std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
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
                                                     setup.norm_weight.data(), setup.columns, kEpsilon))
      setup.token_rows.push_back(Bf16{bf16_bits(value.bits)});
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

// Everything of the case on the machine.
dense::DenseParams upload_case(StepRun& run, const DenseSetup& setup) {
  const bool norms = !setup.x.empty();
  dense::DenseParams params{};
  params.op = plain_op(run.test());
  params.weights = run.upload(setup.records, "weights");
  params.tokens = norms ? static_cast<const void*>(run.upload(setup.x, "x"))
                        : static_cast<const void*>(run.upload(setup.token_rows, "tokens"));
  params.norm_weight = norms ? run.upload(setup.norm_weight, "norm weight") : nullptr;
  params.epsilon = kEpsilon;
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

void check_case(StepRun& run, const DenseSetup& setup, const dense::DenseParams& params) {
  check_plain(run, setup, params.op, params.out);
  check_neurons(run, setup, params.gate_up_out);
}

// More tokens than eight: below, at and beyond what the row takes at once (n).
void shape_many(StepRun& run, DenseSetup& setup, int n, int rows) {
  if (run.test().large)
    return shape_large(
        run, setup, run.test().variant == 1 ? dense::kManyTokens : std::min(2 * n - 3, dense::kManyTokens));
  const int variant = run.test().variant;
  setup.neurons = run.test().op == "gate_up" ? rows / 64 * 32 : 0;
  setup.plain = rows - 2 * setup.neurons;
  setup.columns = variant == 0 ? 576 : variant == 1 ? 512 : variant == 2 ? 1344 : 64 * (1 + run.below(16));
  setup.tokens = variant == 0 ? n - 3 : variant == 1 ? n : variant == 2 ? 9 : n + 1 + run.below(n);
}

// Parts of the tokens that a row takes at once.
int parts_of(const DenseSetup& setup, const plan::RowFacts& row) {
  const int groups = row.n / dense::kTokens;
  return (dense::groups_of(setup.tokens) + groups - 1) / groups;
}

dense::ManyParams upload_many(StepRun& run, const DenseSetup& setup) {
  dense::ManyParams params{};
  params.dense = upload_case(run, setup);
  const std::size_t bytes = dense::partial_bytes(setup.rows(), setup.columns, setup.tokens);
  params.partial = run.take<device::F32x4>(bytes / sizeof(device::F32x4), "partial");
  return params;
}

// Every segment and part of the tokens has its blocks, which share the units.
void launch_many(StepRun& run, const DenseSetup& setup, const dense::ManyParams& params,
                 const plan::RowFacts& multiply) {
  const int blocks = parts_of(setup, multiply) * dense::segments_of(params.dense.records);
  const int shares = std::clamp(run.machine().sm_count() / blocks, 1, setup.rows() / multiply.m);
  run.launch(multiply.row, shares * blocks, params);
}
void launch_sum(StepRun& run, const DenseSetup& setup, const dense::ManyParams& params) {
  if (dense::segments_of(params.dense.records) == 1) return;  // the rows are finished
  run.launch(fourfold::format("dense_sum {}", run.test().row.format),
             std::min(setup.rows() / 16 * dense::groups_of(setup.tokens), run.machine().sm_count()), params);
}

// Of the rows that leave segments, the one for the fewest tokens.
const plan::RowFacts& narrowest_many(StepRun& run, std::string_view kernel = "dense_many") {
  const plan::RowFacts* found = nullptr;
  for (const plan::RowFacts& row : run.machine().rows(kernels::RowKind::step))
    if (row.kernel == kernel && row.format == run.test().row.format && (found == nullptr || row.n < found->n))
      found = &row;
  if (found == nullptr) fail(Code::internal, "no {} row of {}", kernel, run.test().row.format);
  return *found;
}

// A bf16 matrix beside `second`, for the same tokens.
DenseSetup beside(StepRun& run, const DenseSetup& second) {
  DenseSetup first = second;
  first.plain = 32 * (1 + run.test().variant % 3);
  first.neurons = 0;
  first.decode_factor = 1.0f;
  first.records.clear();
  first.row_scale.clear();
  first.gate.clear();
  first.before = run.normals(static_cast<std::size_t>(first.tokens * first.plain), 100.0);
  make_wide_weights(run, first, record::DenseSource::bf16);
  return first;
}

// Both matrices by one row, then the sums of both where K has several segments.
void prove_many_pair(StepRun& run, const plan::RowFacts& multiply, int rows, int more_columns) {
  DenseSetup second;
  shape_many(run, second, multiply.n, rows);
  if (!run.test().large) second.columns += more_columns;
  fill_setup(run, second);
  const DenseSetup first = beside(run, second);
  dense::ManyPairParams params{upload_many(run, first), upload_many(run, second), 0};
  params.second.dense.tokens = params.first.dense.tokens;
  const int segments = dense::segments_of(params.first.dense.records);
  const int cells = parts_of(second, multiply) * segments;
  const int first_shares = 1 + run.below(2);
  const int most = run.test().large ? std::max(run.machine().sm_count() / cells - first_shares, 1) : 3;
  params.first_blocks = cells * first_shares;
  run.launch(multiply.row, params.first_blocks + cells * (1 + run.below(most)), params);
  if (segments > 1)
    run.launch(fourfold::format("dense_sum_pair bf16 {}", run.test().row.format),
               1 + run.below(run.machine().sm_count()), params);
  check_case(run, first, params.first.dense);
  check_case(run, second, params.second.dense);
}

}  // namespace

void prove_dense_few(StepRun& run) {
  DenseSetup setup;
  shape_dense(run, setup);
  fill_setup(run, setup);
  const dense::DenseParams params = upload_case(run, setup);
  run.launch(run.test().row.row, std::min(setup.rows() / run.test().row.m, run.machine().sm_count()), params);
  check_case(run, setup, params);
  if (params.normed_out == nullptr) return;
  const auto normed = run.written(params.normed_out, setup.x.size());
  for (std::size_t i = 0; i < normed.size(); ++i) run.compare_exact(normed[i], setup.token_rows[i].bits);
}

// A bf16 matrix and one of the row's format, each with blocks of its own; what both read is the same.
void prove_dense_pair(StepRun& run) {
  DenseSetup second;
  shape_dense(run, second);
  fill_setup(run, second);
  const DenseSetup first = beside(run, second);
  dense::PairParams params{upload_case(run, first), upload_case(run, second), 1 + run.below(2)};
  params.second.tokens = params.first.tokens;
  params.second.normed_out = nullptr;
  const int more = run.test().large ? run.machine().sm_count() : second.rows() / record::kRows;
  run.launch(run.test().row.row, params.first_blocks + 1 + run.below(more), params);
  check_case(run, first, params.first);
  check_case(run, second, params.second);
  const auto normed = run.written(params.first.normed_out, second.x.size());
  for (std::size_t i = 0; i < normed.size(); ++i) run.compare_exact(normed[i], second.token_rows[i].bits);
}

// A matrix, and beside it the tables that route_table makes of the same logits.
void prove_dense_table(StepRun& run) {
  DenseSetup setup;
  shape_dense(run, setup);
  fill_setup(run, setup);
  step::DenseTableParams params{upload_case(run, setup), {}};
  moe_route::RouteParams& route = params.route;
  route.tokens = setup.tokens;
  route.experts = run.test().large || run.test().variant == 0 ? 256 : 8 + run.below(249);
  route.top_k = 1 + run.below(8);
  route.tile_tokens = 8;
  route.rule.sigmoid = moe_route::is_any_rule_row(run.test().row.row);
  std::vector<float> logits = run.normals(static_cast<std::size_t>(route.tokens * route.experts), 2.0);
  logits[1] = logits[0];  // a tie
  route.logits = run.upload(logits, "logits");
  route.tables = take_tables(run, route);
  const int more = run.test().large ? run.machine().sm_count() : setup.rows() / record::kRows;
  run.launch(run.test().row.row, 2 + run.below(more), params);
  check_case(run, setup, params.dense);
  moe_route::RouteParams alone = route;
  alone.tables = take_tables(run, alone);
  moe_route::launch_route(run.machine(), moe_route::find_route_rows(run.machine()), alone);
  const std::vector<double> got = numbers_of(run, route), want = numbers_of(run, alone);
  run.compare_exact(static_cast<double>(got.size()), static_cast<double>(want.size()));
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) run.compare_exact(got[i], want[i]);
}

void prove_dense_many(StepRun& run) {
  DenseSetup setup;
  // Once more strips than the rings of a block's warps hold stages for.
  shape_many(run, setup, run.test().row.n, run.test().variant == 0 ? 544 : 96);
  fill_setup(run, setup);
  const dense::ManyParams params = upload_many(run, setup);
  launch_many(run, setup, params, run.test().row);
  launch_sum(run, setup, params);
  check_case(run, setup, params.dense);
}

void prove_dense_many_pair(StepRun& run) {
  prove_many_pair(run, run.test().row, run.test().variant == 0 ? 544 : 96, 0);
}

// Behind the narrowest pair of its format, with several segments always.
void prove_dense_sum_pair(StepRun& run) {
  prove_many_pair(run, narrowest_many(run, "dense_many_pair"), 96, 512);
}

// More strips than a block has warps: it goes round several times.
void prove_dense_tall(StepRun& run) {
  DenseSetup setup;
  shape_many(run, setup, run.test().row.n, run.test().variant == 1 ? 64 : 288);
  fill_setup(run, setup);
  dense::ManyParams params{};
  params.dense = upload_case(run, setup);
  const int parts = parts_of(setup, run.test().row);
  const int shares = run.test().large ? std::max(run.machine().sm_count() / parts, 1)
                                      : (run.test().variant % 2 == 0 ? 1 : 3);
  run.launch(run.test().row.row, shares * parts, params);
  check_case(run, setup, params.dense);
}

// Behind the narrowest row of its format, with several segments always.
void prove_dense_sum(StepRun& run) {
  const plan::RowFacts& multiply = narrowest_many(run);
  DenseSetup setup;
  shape_many(run, setup, multiply.n, 96);
  if (!run.test().large) setup.columns += 512;
  fill_setup(run, setup);
  const dense::ManyParams params = upload_many(run, setup);
  launch_many(run, setup, params, multiply);
  launch_sum(run, setup, params);
  check_case(run, setup, params.dense);
}

// Into the residual stream, and its norm for the next kernel.
void prove_dense_sum_norm(StepRun& run) {
  const plan::RowFacts& multiply = narrowest_many(run);
  DenseSetup setup;
  shape_many(run, setup, multiply.n, run.test().variant % 2 == 0 ? 320 : 64);
  if (!run.test().large) setup.columns += 512;
  fill_setup(run, setup);
  std::vector<float> weight;
  for (int row = 0; row < setup.plain; ++row)
    weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  dense::ManyParams params = upload_many(run, setup);
  params.dense.norm_weight = run.upload(weight, "norm weight");
  params.dense.normed_out =
      run.take<std::uint16_t>(static_cast<std::size_t>(setup.tokens * setup.plain), "normed");
  launch_many(run, setup, params, multiply);
  run.launch(run.test().row.row, setup.tokens, params);
  check_case(run, setup, params.dense);
  for (const int token : run.sample(setup.tokens, 4)) {
    std::vector<float> sums;
    for (int row = 0; row < setup.plain; ++row)
      sums.push_back(added(setup, scaled_dot(setup, 0, row, token), row, token).bits);
    const auto want = dense::normed_row<Host>(sums.data(), weight.data(), setup.plain, kEpsilon);
    const auto got = run.written(params.dense.normed_out + token * setup.plain, want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      compare_bf16(run.result(), got[i], {want[i].bits, want[i].value, want[i].error + 0x1p-149});
  }
}

}  // namespace fourfold::verify
