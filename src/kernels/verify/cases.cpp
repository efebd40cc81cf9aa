#include "kernels/verify/cases.h"

#include <algorithm>
#include <iterator>

#include "base/random.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe/paths.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/verify/basic_case.h"
#include "kernels/verify/case_list.h"
#include "kernels/verify/few_case.h"
#include "kernels/verify/gemm_case.h"
#include "kernels/verify/group_case.h"
#include "kernels/verify/layer_case.h"
#include "kernels/verify/step_case.h"

namespace fourfold::verify {
namespace {

using kernels::Machine;
using kernels::RowKind;
using Format = WeightFormat;  // as short as the table below wants it
using moe_layer::Activations;
using moe_layer::Role;

// ---- rows of the grouped GEMMs ----

bool exists(const plan::RowFacts& row, moe::Op op) {
  // f32 results are for dense matrices: all streaming rows have them, of the tiled ones those of bf16 and
  // fp8.
  if (op == moe::Op::plain_f32 || op == moe::Op::add_f32)
    return row.kernel == "moe_stream" || (!row.clamps && (row.format == "bf16" || row.format == "fp8"));
  // A 32-wide block of neurons lies in two strips: MXFP4 tokens come from outside, never from GEMM1.
  return !(row.path == "w4a4" && row.format == "mxfp4" && op == moe::Op::gate_up);
}

// Variant 0: ragged strips and tokens, an expert without tokens, K with a rest. 1: everything exactly once.
// Later ones: whatever the seed says.
void shape_case(GemmCase& test, int variant, std::uint64_t seed) {
  const plan::RowFacts& row = test.row;
  const bool stream = row.kernel == "moe_stream";
  Random random(seed);
  const std::int64_t unit = stream ? row.k : 64;
  const bool ragged = stream && moe::is_ragged(row.clamps, row.k);
  if (variant == 0) {
    test.rows = stream ? 160 : row.m >= 256 ? 320 : 192;
    test.columns = ragged ? 832 : stream ? (row.k == 512 ? 1024 : row.k == 256 ? 768 : 320) : row.k + 64;
    test.tokens_per_expert = {3, 0, row.n + row.n / 2 + 1};
  } else if (variant == 1) {
    test.rows = stream ? 32 : row.m;
    test.columns = ragged ? moe::kRaggedColumns : row.k;
    test.tokens_per_expert = {row.n, 1};
  } else {
    test.rows = 32 * (1 + static_cast<std::int64_t>(random.below(6)));
    test.columns =
        unit * (1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(512 / unit))));
    if (ragged) test.columns += moe::kRaggedColumns + 64 * static_cast<std::int64_t>(random.below(5));
    const auto most = static_cast<std::uint64_t>(std::min(row.n, 64) + 9);
    test.tokens_per_expert = {static_cast<int>(random.below(most)), 1 + static_cast<int>(random.below(most)),
                              static_cast<int>(random.below(9))};
  }
  // Token records of the next GEMM hold 64 neurons: 128 rows of gate and up.
  if (test.op == moe::Op::gate_up) test.rows = (test.rows + 127) / 128 * 128;
}

void add_gemm(CaseList& list, const plan::RowFacts& row, moe::Op op, int variant, Convention convention,
              bool by_row = false) {
  GemmCase test;
  test.row = row;
  test.op = op;
  test.convention = convention;
  test.by_row = by_row;
  test.seed = list.next_seed();
  shape_case(test, variant, test.seed);
  list.add_gemm(test);
}

constexpr moe::Op kOps[] = {moe::Op::gate_up, moe::Op::down, moe::Op::plain, moe::Op::plain_f32,
                            moe::Op::add_f32};

// The quick proof takes one operation a row, each in its turn.
bool taken_quickly(const plan::RowFacts& row, moe::Op op, int index) {
  const moe::Op turn = kOps[static_cast<std::size_t>(index) % std::size(kOps)];
  return op == (exists(row, turn) ? turn : moe::Op::plain);
}

void add_gemm_rows(CaseList& list, RowSet set) {
  int index = 0;
  std::vector<std::string>
      conventions_of;  // paths whose first row also reads the other checkpoint convention
  for (const plan::RowFacts& row : list.machine().rows(RowKind::gemm)) {
    ++index;
    if (set == RowSet::own && row.arch != list.machine().arch().name) continue;
    for (int variant = 0; variant < list.variants(); ++variant)
      for (const moe::Op op : kOps)
        if (exists(row, op) && (!list.quick() || taken_quickly(row, op, index)))
          add_gemm(list, row, op, variant, Convention::model_opt);
    if (row.kernel == "moe_gemm" && row.path == moe::W4a4::name)
      for (int variant = 0; variant < list.variants(); ++variant)
        add_gemm(list, row, exists(row, moe::Op::gate_up) ? moe::Op::gate_up : moe::Op::plain, variant,
                 Convention::model_opt, /*by_row=*/true);
    const std::string path = format("{} {}", row.kernel, row.path);
    if (row.format != "nvfp4" ||
        std::find(conventions_of.begin(), conventions_of.end(), path) != conventions_of.end())
      continue;
    conventions_of.push_back(path);
    add_gemm(list, row, moe::Op::plain, 1, Convention::compressed_tensors);
  }
}

// ---- rows of the few-token kernels ----

void add_few_rows(CaseList& list, RowKind kind) {
  for (const plan::RowFacts& row : list.machine().rows(kind))
    for (int variant = 0; variant < list.variants(); ++variant) {
      FewCase test;
      test.row = row;
      test.kind = kind;
      test.rows = variant % 2 == 0 ? 96 : 64;
      // Several segments, the last with an odd number of records; 12 pairs must fit GEMM2's shared memory.
      const int long_k = kind == RowKind::few_gate_up ? 1088 : 832;
      test.columns = variant % 3 == 0 ? long_k : variant % 3 == 1 ? 320 : 512;
      test.experts = 3 + variant;
      test.top_k = 2 + variant % 2;
      test.tokens = variant % 3 == 0 ? 4 : variant % 3;
      test.seed = list.next_seed();
      Case item;
      item.kernel = row.kernel;
      item.row = row.row;
      item.op = kind == RowKind::few_gate_up ? "gate_up" : "down";
      item.seed = test.seed;
      item.cost = work(2.0 * static_cast<double>(test.rows), static_cast<double>(test.columns),
                       8.0 * test.tokens * test.top_k);
      item.run = [test](Machine& machine, bool exact) { return run_few_case(machine, test, exact); };
      list.add(std::move(item));
    }
}

// ---- rows of the step kernels ----

void add_step_rows(CaseList& list, RowSet set) {
  std::size_t index = 0;
  for (const plan::RowFacts& row : list.machine().rows(RowKind::step)) {
    if (set == RowSet::own && row.arch != list.machine().arch().name) continue;
    const std::vector<std::string> ops = step_ops(row);
    ++index;
    for (int variant = 0; variant < list.variants(); ++variant)
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (!list.quick() || i == index % ops.size())
          list.add_step({.row = row, .op = ops[i], .variant = variant, .seed = list.next_seed()});
  }
}

// ---- whole layers ----

struct LayerKind {
  moe_layer::Shape shape;
  int tokens;
  Role role;
  Activations activations;
  Format format;
  LogitKind logits;
  bool renormalise;
  bool quick;        // part of the quick proof too
  bool few = false;  // by the two-kernel path
  bool packed_for_w4a4 = false;
  Routing routing = Routing::softmax;
  bool clamped = false;
};

// Where some logits are NaN there are experts enough: a token with fewer numbers than k has no meaning.
// clang-format off
constexpr LayerKind kLayers[] = {
    //   H    I   E  k  tokens
    {{ 512, 256,  6, 3},  1, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true},
    {{ 256, 512,  5, 2},  4, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  true,  true},
    {{ 192, 128, 12, 2},  3, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::with_nan,       true,  false, true},
    {{ 192, 128,  4, 4},  2, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         false, false, true},
    {{ 128,  64,300,10},  1, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  false, true},
    {{ 320, 192,  6, 3},  9, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true},
    {{ 128,  64,  9, 2}, 70, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         false, false},
    {{ 256, 128,  8, 2}, 12, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::one_expert_set, true,  false},
    {{ 128, 128,  5, 3}, 11, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  false},
    {{ 128, 128, 12, 3}, 10, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::with_nan,       true,  true},
    {{ 192, 128,  5, 2},  9, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  true},
    {{ 128,  64, 12, 1},  6, Role::decode,  Activations::w4a4,  Format::nvfp4, LogitKind::random,         true,  true},
    {{ 256, 128,  3, 3},  7, Role::decode,  Activations::w4a4,  Format::nvfp4, LogitKind::ties,           true,  false},
    {{ 128,  64,  4, 2},  0, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true},
    {{ 320, 128,  4, 2}, 20, Role::prefill, Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true},
    {{ 128,  64,  6, 3}, 80, Role::prefill, Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  false},
    {{ 128, 128,  4, 2}, 15, Role::prefill, Activations::w4a16, Format::nvfp4, LogitKind::one_expert_set, true,  false},
    {{ 128,  64, 12, 3},  9, Role::prefill, Activations::w4a16, Format::nvfp4, LogitKind::with_nan,       true,  false},
    {{ 192, 128,  4, 2}, 17, Role::prefill, Activations::w4a16, Format::mxfp4, LogitKind::ties,           true,  true},
    {{ 128,  64,  4, 2}, 19, Role::prefill, Activations::w4a4,  Format::nvfp4, LogitKind::random,         true,  true},
    {{ 128, 128,  3, 2}, 66, Role::prefill, Activations::w4a4,  Format::nvfp4, LogitKind::one_expert_set, true,  false},
    {{ 512, 256,  6, 3},  1, Role::decode,  Activations::w4a16, Format::bf16,  LogitKind::random,         true,  true},
    {{ 192, 128,  5, 2},  9, Role::decode,  Activations::w4a16, Format::bf16,  LogitKind::ties,           true,  false},
    {{ 128,  64,  6, 3}, 20, Role::prefill, Activations::w4a16, Format::bf16,  LogitKind::random,         true,  true},
    {{ 256, 128,  4, 2},  5, Role::decode,  Activations::w4a16, Format::fp8,   LogitKind::random,         true,  false},
    {{ 128, 128,  4, 2}, 70, Role::prefill, Activations::w4a16, Format::fp8,   LogitKind::random,         true,  false},
    {{ 512, 256,  6, 3},  1, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true,  true,  true},
    {{ 192, 128, 12, 2},  3, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  false, true,  true},
    {{ 320, 192,  6, 3},  9, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true,  false, true},
    {{ 128,  64,  9, 2}, 70, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::with_nan,       true,  false, false, true},
    {{ 128, 128, 12, 4},  3, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  true,  true,  false, Routing::groups},
    {{ 192,  64, 10, 3},  1, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         false, false, true,  false, Routing::sigmoid},
    {{ 128,  64, 12, 3},  9, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true,  false, false, Routing::sigmoid},
    {{ 128,  64,  9, 2}, 20, Role::prefill, Activations::w4a16, Format::nvfp4, LogitKind::ties,           true,  false, false, false, Routing::groups},
    {{ 704, 192,  6, 4},  1, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  true,  false, false, Routing::softmax, true},
    {{ 192, 576,  5, 2},  9, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::ties,           true,  false, false, false, Routing::softmax, true},
    {{1344, 832,  6, 4},  1, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::ties,           true,  true,  true,  false, Routing::softmax, true},
    {{ 832, 320,  5, 2},  4, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  false, true,  false, Routing::softmax, true},
    {{1536, 192, 12, 3},  2, Role::decode,  Activations::w4a16, Format::nvfp4, LogitKind::random,         true,  true,  true,  false, Routing::sigmoid},
    {{2880, 320,  6, 4},  5, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  true,  false, false, Routing::softmax, true},
    {{ 832, 512,  5, 2},  9, Role::decode,  Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  false, false, false, Routing::softmax, true},
    {{ 192, 128,  4, 2}, 17, Role::prefill, Activations::w4a16, Format::mxfp4, LogitKind::random,         true,  true,  false, false, Routing::softmax, true},
    {{ 192, 128,  4, 2}, 17, Role::prefill, Activations::w4a16, Format::bf16,  LogitKind::random,         true,  false, false, false, Routing::softmax, true},
};
// clang-format on

void add_layers(CaseList& list) {
  for (int variant = 0; variant < list.variants(); ++variant)
    for (const LayerKind& kind : kLayers) {
      if (list.quick() && !kind.quick) continue;
      LayerCase test;
      test.request = {kind.shape,  kind.activations,     kind.format, kind.role,
                      kind.tokens, kind.packed_for_w4a4, 0,           kind.clamped};
      test.logits = kind.logits;
      test.renormalise = kind.renormalise;
      test.few = kind.few;
      test.routing = kind.routing;
      test.seed = list.next_seed();
      list.add_layer(test);
    }
}

// ---- the grouped GEMM without a router ----

void add_groups(CaseList& list) {
  constexpr moe_group::GemmRequest requests[] = {
      {192, 128, 4, Activations::w4a16, Format::nvfp4, Role::decode, 0, true},
      {256, 64, 4, Activations::w4a16, Format::mxfp4, Role::decode, 0, false},
      {128, 64, 4, Activations::w4a4, Format::nvfp4, Role::decode, 0, false},
      {192, 128, 4, Activations::w4a16, Format::nvfp4, Role::prefill, 0, false},
      {128, 128, 4, Activations::w4a4, Format::nvfp4, Role::prefill, 0, false},
  };
  for (int variant = 0; variant < list.variants(); ++variant)
    for (const moe_group::GemmRequest& request : requests) {
      GroupCase test;
      test.request = request;
      test.rows_per_expert = {5 + variant, 0, 11, 2};
      for (const int rows : test.rows_per_expert) test.request.rows += rows;
      test.seed = list.next_seed();
      const moe_layer::Request as_layer{{request.columns, request.columns, request.experts, 1},
                                        request.activations,
                                        request.format,
                                        request.role,
                                        test.request.rows};
      Case item;
      item.kernel = "moe_group";
      item.row = moe_layer::choose_gemm(list.machine().arch(), as_layer).gate_up_row;
      item.op = op_of(test);
      item.seed = test.seed;
      item.cost = work(request.out_columns, request.columns, test.request.rows);
      if (request.activations == Activations::w4a4) item.native_form = "nvfp4";
      item.run = [test](Machine& machine, bool exact) { return run_group_case(machine, test, exact); };
      list.add(std::move(item));
    }
}

// ---- kernels without rows ----

template <class Test, class Run>
void add_basic(CaseList& list, const char* kernel, Test test, double cost, Run run) {
  test.seed = list.next_seed();
  Case item;
  item.kernel = item.row = kernel;
  item.op = op_of(test);
  item.seed = test.seed;
  item.cost = cost;
  item.run = [test, run](Machine& machine, bool) { return run(machine, test); };
  list.add(std::move(item));
}

void add_basics(CaseList& list) {
  using record::BitOrder;
  using record::RowOrder;
  for (int variant = 0; variant < list.variants(); ++variant) {
    for (const bool mxfp4 : {false, true})
      for (const RowOrder rows : {RowOrder::plain, RowOrder::gate_up})
        for (const BitOrder bits : {BitOrder::half, BitOrder::fp4})
          add_basic(list, "pack", PackCase{mxfp4, rows, bits, 64 + 64 * variant, 192, 0}, 0.1, run_pack_case);
    using record::DenseSource;
    for (const DenseSource source : {DenseSource::bf16, DenseSource::f32, DenseSource::e4m3})
      for (const RowOrder rows : {RowOrder::plain, RowOrder::gate_up})
        add_basic(list, "pack_dense", DensePackCase{source, rows, 70 + 34 * variant, 136, 0}, 0.1,
                  run_dense_pack_case);
    for (const bool staged : {true, false})
      add_basic(list, "moe_tokens", TokenCase{staged, 24, 192, 0}, 0.1, run_token_case);
    for (const RouteCase& test :
         {RouteCase{1, 1, 1, 8, true, 0}, RouteCase{9, 16, 4, 8, true, 0}, RouteCase{64, 48, 8, 16, false, 0},
          RouteCase{100, 40, 6, 64, true, 0}, RouteCase{5, 1024, 32, 8, true, 0},
          RouteCase{70, 1024, 32, 128, true, 0}, RouteCase{9, 128, 8, 8, true, 0, Routing::sigmoid},
          RouteCase{70, 256, 8, 64, false, 0, Routing::sigmoid},
          RouteCase{16, 48, 6, 8, true, 0, Routing::groups},
          RouteCase{20, 768, 32, 16, true, 0, Routing::groups}})
      add_basic(list, "moe_route", test, 0.5, run_route_case);
  }
}

}  // namespace

std::vector<Case> make_cases(const Machine& machine, RowSet set, const CaseOptions& options) {
  CaseList list(machine, options);
  if (options.large) {
    add_large_cases(list);
    return list.take();
  }
  add_gemm_rows(list, set);
  add_step_rows(list, set);
  if (set == RowSet::all) {
    add_few_rows(list, RowKind::few_gate_up);
    add_few_rows(list, RowKind::few_down);
    add_basics(list);
  }
  add_layers(list);
  add_groups(list);
  return list.take();
}

std::vector<std::string> case_names(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& item : cases) names.push_back(item.kernel + " | " + item.row + " | " + item.op);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace fourfold::verify
