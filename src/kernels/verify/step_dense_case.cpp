// The proofs of the dense decode kernels: every format, epilogue and source of tokens, bit for bit.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format.h"
#include "kernels/dense/dense_pair.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/dense_table_params.h"
#include "kernels/dense/many_pair.h"
#include "kernels/dense/many_params.h"
#include "kernels/dense/reference.h"
#include "kernels/moe_route/launch_route.h"
#include "kernels/record/pack.h"
#include "kernels/verify/step_dense_setup.h"
#include "kernels/verify/step_run.h"
#include "kernels/verify/step_tables.h"

namespace fourfold::verify {
namespace {

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

// The first shape of a row that leaves segments is for rings that are filled again: rows enough, in as few
// blocks as can be.
bool fills_again(const StepRun& run, const plan::RowFacts& multiply) {
  return run.test().variant == 0 && !run.test().large && run.test().row.row == multiply.row;
}
int rows_to_multiply(const StepRun& run) { return fills_again(run, run.test().row) ? 544 : 96; }

// One block multiplies all rows of a segment. Where they are more bytes than all of its shared memory, its
// ring cannot hold them: places are filled again, and what guards them is needed.
void require_filled_again(const DenseSetup& setup, const plan::RowFacts& multiply) {
  const auto records = static_cast<std::size_t>(setup.columns / record::kColumns);
  const std::size_t of_a_segment = std::min<std::size_t>(records, moe::kSegmentColumns / record::kColumns);
  const std::size_t bytes = setup.records.size() / records * of_a_segment;
  if (bytes <= static_cast<std::size_t>(multiply.total_bytes))
    fail(Code::internal,
         "{} rows are {} bytes a segment, and a block of {} has {}: its ring need not be filled again",
         setup.rows(), bytes, multiply.row, multiply.total_bytes);
}

// Every segment and part of the tokens has its blocks, which share the units.
void launch_many(StepRun& run, const DenseSetup& setup, const dense::ManyParams& params,
                 const plan::RowFacts& multiply) {
  const int blocks = parts_of(setup, multiply) * dense::segments_of(params.dense.records);
  int shares = std::clamp(run.machine().sm_count() / blocks, 1, setup.rows() / multiply.m);
  if (fills_again(run, multiply)) {
    require_filled_again(setup, multiply);
    shares = 1;
  }
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

// Blocks of a segment and part of the tokens, which share the units of either matrix.
struct PairShares {
  int first, second;
};
PairShares pair_shares(StepRun& run, const plan::RowFacts& multiply, int cells) {
  if (fills_again(run, multiply)) return {1, 1};
  const int first = 1 + run.below(2);
  const int most = run.test().large ? std::max(run.machine().sm_count() / cells - first, 1) : 3;
  return {first, 1 + run.below(most)};
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
  if (fills_again(run, multiply)) require_filled_again(second, multiply);
  const PairShares shares = pair_shares(run, multiply, cells);
  params.first_blocks = cells * shares.first;
  run.launch(multiply.row, params.first_blocks + cells * shares.second, params);
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

namespace {

// What block 0 makes tables of; check_tables() holds them against those of the routing's own kernel.
moe_route::RouteParams table_route(StepRun& run, const DenseSetup& setup) {
  moe_route::RouteParams route{};
  route.tokens = setup.tokens;
  route.experts = run.test().large || run.test().variant == 0 ? 256 : 8 + run.below(249);
  route.top_k = 1 + run.below(8);
  route.tile_tokens = 8;
  route.rule.sigmoid = moe_route::is_any_rule_row(run.test().row.row);
  std::vector<float> logits = run.normals(static_cast<std::size_t>(route.tokens * route.experts), 2.0);
  logits[1] = logits[0];  // a tie
  route.logits = run.upload(logits, "logits");
  route.tables = take_tables(run, route);
  return route;
}

void check_tables(StepRun& run, const moe_route::RouteParams& route) {
  moe_route::RouteParams alone = route;
  alone.tables = take_tables(run, alone);
  moe_route::launch_route(run.machine(), moe_route::find_route_rows(run.machine()), alone);
  const std::vector<double> got = numbers_of(run, route), want = numbers_of(run, alone);
  run.compare_exact(static_cast<double>(got.size()), static_cast<double>(want.size()));
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) run.compare_exact(got[i], want[i]);
}

int blocks_beside_tables(StepRun& run, const DenseSetup& setup) {
  return 2 + run.below(run.test().large ? run.machine().sm_count() : setup.rows() / record::kRows);
}

}  // namespace

// A matrix, and beside it the tables that route_table makes of the same logits.
void prove_dense_table(StepRun& run) {
  DenseSetup setup;
  shape_dense(run, setup);
  fill_setup(run, setup);
  dense::DenseTableParams params{upload_case(run, setup), {}};
  params.route = table_route(run, setup);
  run.launch(run.test().row.row, blocks_beside_tables(run, setup), params);
  check_case(run, setup, params.dense);
  check_tables(run, params.route);
}

// Nine to sixteen tokens, and K of one segment: it is finished in registers, without memory for sums.
void prove_many_table(StepRun& run) {
  DenseSetup setup;
  shape_many(run, setup, 16, 96);
  setup.tokens = 9 + run.below(8);
  setup.columns = run.test().large || run.test().variant == 0 ? 512 : 64 * (1 + run.below(8));
  fill_setup(run, setup);
  dense::ManyTableParams params{{upload_case(run, setup), nullptr}, table_route(run, setup)};
  run.launch(run.test().row.row, blocks_beside_tables(run, setup), params);
  check_case(run, setup, params.many.dense);
  check_tables(run, params.route);
}

void prove_dense_many(StepRun& run) {
  DenseSetup setup;
  shape_many(run, setup, run.test().row.n, rows_to_multiply(run));
  fill_setup(run, setup);
  const dense::ManyParams params = upload_many(run, setup);
  launch_many(run, setup, params, run.test().row);
  launch_sum(run, setup, params);
  check_case(run, setup, params.dense);
}

void prove_dense_many_pair(StepRun& run) { prove_many_pair(run, run.test().row, rows_to_multiply(run), 0); }

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
    for (int row = 0; row < setup.plain; ++row) sums.push_back(added_sum(setup, row, token));
    const auto want = dense::normed_row<Host>(sums.data(), weight.data(), setup.plain, kDenseEpsilon);
    const auto got = run.written(params.dense.normed_out + token * setup.plain, want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      compare_bf16(run.result(), got[i], {want[i].bits, want[i].value, want[i].error + 0x1p-149});
  }
}

}  // namespace fourfold::verify
