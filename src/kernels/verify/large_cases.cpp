// Proofs for silicon: true shapes, where the rings of 132 blocks wrap many times and every block has work.
// The simulator would take days.
#include <array>
#include <set>
#include <string_view>

#include "kernels/moe_layer/choose.h"
#include "kernels/verify/basic_case.h"
#include "kernels/verify/case_list.h"
#include "kernels/verify/large_shape.h"

namespace fourfold::verify {
namespace {

using kernels::RowKind;
using moe_layer::Activations;
using moe_layer::Role;

constexpr std::array<std::string_view, 2> kShapes{"35b", "397b-tp4"};
constexpr int kDecodeTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int kPromptTokens[] = {64, 256, 1'024, 8'192};
constexpr int kCheckedTokens = 12;
// gpt-oss-20b, whose experts have those of 120b's size, and a quarter of their number. Two tokens of it are
// several batches of the streamed GEMM1 even for 132 blocks.
constexpr moe_layer::Shape kClampedShape{2'880, 2'880, 32, 4};

// The layer with the rows it would be served with. The other formats take less of the time.
void add_layers(CaseList& list, const moe_layer::Shape& shape, WeightFormat format, Activations activations,
                Role role, bool clamped = false) {
  const auto weights = share_weights(list.next_seed());
  const auto add = [&](int tokens, LogitKind logits) {
    LayerCase test;
    test.request = {shape, activations, format, role, tokens};
    test.request.clamped = clamped;
    test.logits = logits;
    test.seed = list.next_seed();
    test.weights = weights;
    test.checked_tokens = kCheckedTokens;
    if (choice_of(list.machine().arch(), test).ok()) list.add_layer(test);
  };
  const bool is_main = format == WeightFormat::nvfp4 || clamped;
  if (role == Role::decode)
    for (const int tokens : kDecodeTokens) {
      if (is_main || tokens == 1 || tokens == 16) add(tokens, LogitKind::random);
    }
  else
    for (const int tokens : kPromptTokens)
      if (is_main || tokens == 1'024) add(tokens, LogitKind::random);
  // All tokens at the same experts: the longest lists a tile can have.
  if (is_main) add(role == Role::decode ? 64 : 8'192, LogitKind::one_expert_set);
}

bool has_native_fp4(const CaseList& list) { return list.machine().arch().has_fp4_mma; }

void add_all_layers(CaseList& list) {
  for (const std::string_view name : kShapes) {
    const moe_layer::Shape shape = moe_layer::parse_shape(std::string(name));
    for (const Role role : {Role::decode, Role::prefill}) {
      add_layers(list, shape, WeightFormat::nvfp4, Activations::w4a16, role);
      if (has_native_fp4(list)) add_layers(list, shape, WeightFormat::nvfp4, Activations::w4a4, role);
      if (name != kShapes[0]) continue;
      for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::bf16, WeightFormat::fp8})
        add_layers(list, shape, format, Activations::w4a16, role);
    }
  }
  for (const Role role : {Role::decode, Role::prefill})
    add_layers(list, kClampedShape, WeightFormat::mxfp4, Activations::w4a16, role, true);
}

// Every row of the grouped GEMMs as a dense matrix of the model: into DeltaNet, and back into the residual
// stream where the row can add.
void add_matrices(CaseList& list) {
  for (const plan::RowFacts& row : list.machine().rows(RowKind::gemm)) {
    if (row.path == "w4a4" && !has_native_fp4(list)) continue;
    const bool adds =
        row.kernel == "moe_stream" || (!row.clamps && (row.format == "bf16" || row.format == "fp8"));
    for (const bool is_rank : {false, true}) {
      GemmCase test;
      test.row = row;
      test.large = true;
      test.op = is_rank && adds ? moe::Op::add_f32 : moe::Op::plain;
      const LargeShape& shape = kLargeShapes[is_rank ? 1 : 0];
      test.rows = is_rank ? shape.hidden : shape.projections;
      test.columns = is_rank ? shape.mixed : shape.hidden;
      test.tokens_per_expert = {row.kernel == "moe_stream" ? 3 * row.n + 1 : shape.prompt_rows};
      test.seed = list.next_seed();
      list.add_gemm(test);
    }
  }
}

// Of the step kernels those whose work grows with the model: the others copy or choose a few numbers, and
// what ranks exchange has sizes of its own.
bool has_large_shape(const plan::RowFacts& row) {
  constexpr std::string_view others[] = {"all_reduce",  "all_gather",   "prepare", "combine splits",
                                         "row_squares", "accept",       "embed",   "take_rows",
                                         "latent_rows", "turn_queries", "add_bias"};
  for (const std::string_view other : others)
    if (row.kernel == other || row.role == other) return false;
  return !row.kernel.starts_with("delta") || row.k == 128;
}

void add_step_rows(CaseList& list) {
  for (const plan::RowFacts& row : list.machine().rows(RowKind::step)) {
    if (!has_large_shape(row)) continue;
    for (const std::string& op : step_ops(row))
      for (const int variant : {0, 1})
        list.add_step({.row = row, .op = op, .variant = variant, .seed = list.next_seed(), .large = true});
  }
}

void add_routes(CaseList& list) {
  for (RouteCase test : {RouteCase{1, 256, 8, 8, true, 0}, RouteCase{256, 512, 10, 8, true, 0},
                         RouteCase{8'192, 256, 8, 128, true, 0}, RouteCase{8'192, 512, 10, 64, true, 0}}) {
    test.seed = list.next_seed();
    Case item;
    item.kernel = item.row = "moe_route";
    item.op = op_of(test);
    item.seed = test.seed;
    item.run = [test](kernels::Machine& machine, bool) { return run_route_case(machine, test); };
    list.add(std::move(item));
  }
}

}  // namespace

std::vector<int> sample_places(Random& random, std::int64_t count, int most) {
  std::set<int> places;
  if (count <= most)
    for (int i = 0; i < count; ++i) places.insert(places.end(), i);
  else
    for (places = {0, static_cast<int>(count - 1)}; static_cast<int>(places.size()) < most;)
      places.insert(static_cast<int>(random.below(static_cast<std::uint64_t>(count))));
  return {places.begin(), places.end()};
}

void add_large_cases(CaseList& list) {
  add_all_layers(list);
  add_matrices(list);
  add_step_rows(list);
  add_routes(list);
}

}  // namespace fourfold::verify
