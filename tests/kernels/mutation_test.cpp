// Removes every wait, fence, arrive and expect-tx of the layer's kernels in turn and runs the layer again
// (mutations.h). The kernels of a step are in step_mutation_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/format.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe/paths.h"
#include "kernels/moe/row_list.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_route/route_rule.h"
#include "kernels/verify/gemm_case.h"
#include "tests/kernels/mutations.h"
#include "tests/kernels/route_tables.h"
#include "tests/kernels/small_layer.h"

namespace fourfold::test {
namespace {

using moe_layer::Activations;
using moe_layer::Role;
// Panels the weight ring and the token ring of a tiled 16-bit row hold.
int weight_panels(const plan::RowFacts& row) { return row.stages * row.k / 64; }
int token_panels(const plan::RowFacts& row) {
  for (const plan::RowPart& part : row.parts)
    if (part.name == "token panels") return part.bytes / (row.n * 128);
  return 0;
}

const Survivor kSurvivors[] = {
    kReleasesSurvive,
    {SyncOp::wait, "load_tiles.h", "cta.wait(&storage.tokens_empty",
     "both rings are equally deep and a math warp gives a stage of weights back after the panels that met "
     "it, so the wait for the stage covers them. Rows with a shallower token ring need it",
     [](const plan::RowFacts& row) {
       return row.path.ends_with("-mma") && weight_panels(row) == token_panels(row);
     }},
    {SyncOp::sync_warp, "load_tiles.h", "cta.sync_warp();  // every lane has looked",
     "for lanes without a copy: one must miss its turns while the ring goes round, which one schedule in "
     "many does (NoLaneOfTheFp4LoaderIsLapped)",
     [](const plan::RowFacts&) { return true; }, true},
    {SyncOp::sync_warp, "fed_ring.h", "cta.sync_warp();  // the lanes go together",
     "for the pace of the lanes alone: each has a ring of its own",
     [](const plan::RowFacts&) { return true; }},
    {SyncOp::wait_predecessors, "few_down.h", "[&] { cta.wait_predecessors(); }",
     "what feeds reads nothing of GEMM1's: it waits where it would only look at barriers",
     [](const plan::RowFacts&) { return true; }},
};

struct Subject {
  std::string name;
  const plan::ArchFacts* arch = &plan::kSm120;
  SmallLayerOptions layer;
  Role role = Role::decode;
  int tokens = 1;
  moe_layer::Choice choice = {};           // rows; empty: what choose() says
  std::set<std::string> files = {};        // whose sites are mutated; empty: all but those of other_files
  std::set<std::string> other_files = {};  // another subject's
  // What the shape is there to exercise, in `files`: operations, and lines by a part of their text.
  std::set<SyncOp> must_meet = {};
  std::vector<std::string_view> must_meet_lines = {};
  int blocks = 2;
};

moe_layer::Choice rows_of(std::string row, int tile_tokens) {
  moe_layer::Choice choice;
  choice.gate_up_row = choice.down_row = std::move(row);
  choice.tile_tokens = tile_tokens;
  return choice;
}

std::vector<int> first_rows(int count) {
  std::vector<int> rows;
  for (int i = 0; i < count; ++i) rows.push_back(i);
  return rows;
}

// A ring hides the loss of its `empty` barriers until it has wrapped: every block must fill each stage more
// than twice.
void expect_wrapped(const plan::RowFacts& row, const Subject& subject) {
  if (row.kernel != "moe_gemm") return;
  const auto& shape = subject.layer.shape;
  // In the first GEMM; a tile per expert is the least there is, because every expert has tokens.
  const int items = (2 * shape.intermediate + row.m - 1) / row.m * shape.experts / subject.blocks;
  const int panels = std::max(weight_panels(row), token_panels(row));
  EXPECT_GT(items * shape.hidden / 64, 2 * panels) << row.row << ": the shape is too small to wrap its rings";
}

void run_subject(const Subject& subject) {
  SCOPED_TRACE(subject.name);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(
      device, {.arch = subject.arch, .persistent_blocks = subject.blocks, .dependent_launch = true});
  SmallLayer layer(*machine, subject.layer);
  const moe_layer::Request request = layer.request(subject.role, subject.tokens);
  const moe_layer::Prepared prepared = subject.choice.gate_up_row.empty()
                                           ? moe_layer::prepare(*machine, request)
                                           : moe_layer::prepare_with(*machine, request, subject.choice);
  const plan::RowFacts& row =
      machine->rows(prepared.gate_up.kind)[static_cast<std::size_t>(prepared.gate_up.index)];
  expect_wrapped(row, subject);
  Batch batch(layer, prepared, first_rows(subject.tokens));
  const Run<std::uint16_t> run = [&] { return batch.run(); };
  std::set<std::string> files = subject.files;
  if (!subject.other_files.empty()) {
    run();
    for (const SyncSite& site : device.executed_sites())
      if (!subject.other_files.contains(site.file)) files.insert(site.file);
  }
  mutate_all<std::uint16_t>(device, subject.name, row, kSurvivors, run, files);
  std::set<SyncOp> ops;
  std::string lines;
  for (const SyncSite& site : device.executed_sites()) {
    if (!files.contains(site.file)) continue;
    ops.insert(site.op);
    lines += source_line(site) + "\n";
  }
  for (const SyncOp op : subject.must_meet)
    EXPECT_TRUE(ops.contains(op)) << name_of(op) << " was not executed";
  for (const std::string_view line : subject.must_meet_lines)
    EXPECT_NE(lines.find(line), std::string::npos) << line << " was not executed";
}

std::set<std::string> tile_files(const char* also = "moe_gemm.h") {
  return {
      "moe_gemm.h", "load_tiles.h", "multiply_mma.h", "multiply_wgmma.h", "finish_tile.h", "finish_group.h",
      also};
}

SmallLayerOptions layer_of(moe_layer::Shape shape, int pool, Activations activations = Activations::w4a16,
                           WeightFormat format = WeightFormat::nvfp4) {
  SmallLayerOptions options;
  options.shape = shape;
  options.pool = pool;
  options.activations = activations;
  options.format = format;
  return options;
}

TEST(Mutation, FewTokens) {
  // Three segments of K in the first GEMM, two in the second, three tokens that share experts.
  const SmallLayerOptions layer = layer_of({1088, 576, 3, 2}, 3);
  run_subject({.name = "few",
               .layer = layer,
               .tokens = 3,
               .choice = moe_layer::few_choice(
                   {layer.shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 3})});
}

TEST(Mutation, FewTokensStreamed) {
  // Two segments, the last of them short, and biases in both GEMMs; strips in four batches, and in both GEMMs
  // warps with more copies than their rings hold.
  SmallLayerOptions layer = layer_of({576, 1088, 3, 2}, 3, Activations::w4a16, WeightFormat::mxfp4);
  layer.clamped = true;
  moe_layer::Request request{layer.shape, layer.activations, layer.format, Role::decode, 3};
  request.clamped = true;
  moe_layer::Choice choice = moe_layer::few_choice(request);
  // Hidden sizes beyond 2,048 have this one.
  choice.down_row = "moe_few_down 32x4x512 w4a16-mma mxfp4 clamped";
  run_subject({.name = "few, streamed",
               .layer = layer,
               .tokens = 3,
               .choice = choice,
               .files = {"few_stream.h", "fed_ring.h", "few_down.h", "token_rows.h"},
               .must_meet_lines = {"cta.wait(&ring.empty", "// the sums are read"},
               .blocks = 8});
}

TEST(Mutation, StreamAndCombine) {
  // Six segments, and three strips for four warps: the sums of two of them have room at once.
  run_subject({.name = "stream",
               .layer = layer_of({2624, 64, 3, 2}, 9),
               .tokens = 9,
               .files = {"moe_stream.h", "moe_combine.h"},
               .must_meet = {SyncOp::barrier_sync},
               .blocks = 4});
}

TEST(Mutation, StreamFp4) {
  run_subject({.name = "stream w4a4",
               .layer = layer_of({1088, 64, 3, 2}, 9, Activations::w4a4),
               .tokens = 9,
               .files = {"moe_stream.h", "moe_tokens.h"},
               .must_meet = {SyncOp::barrier_sync},
               .blocks = 4});
}

// The routing tables as one vector; more pairs than warps hold at once, more experts than the block has
// threads.
void run_route(const char* name, const RouteShape& shape, const std::set<std::string>& files = {}) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  Random random(4);
  std::vector<float> logits;
  for (int i = 0; i < shape.tokens * shape.experts; ++i)
    logits.push_back(static_cast<float>(random.normal()));
  RouteRun route(*machine, shape, logits);
  mutate_all<std::uint16_t>(
      device, name, {}, kSurvivors,
      [&] {
        const Tables tables = route.run();
        std::vector<std::uint16_t> all;
        const auto add = [&](const auto& values) {
          const auto* const words = reinterpret_cast<const std::uint16_t*>(values.data());
          all.insert(all.end(), words, words + values.size() * sizeof(values[0]) / 2);
        };
        add(tables.pair_expert);
        add(tables.pair_weight);
        add(tables.pair_slot);
        add(tables.slot_token);
        add(tables.slot_weight);
        add(tables.tiles);
        return all;
      },
      files);
}

TEST(Mutation, OneBlockRoute) {
  static_assert(moe_route::in_one_block(16, 300) && !moe_route::in_one_block(17, 300));
  run_route("route, one block", {.tokens = 16, .experts = 300, .top_k = 20},
            {"few_tables.h", "lay_out.h", "top_k.h"});
}
TEST(Mutation, OneBlockRouteOfSigmoidScores) {
  RouteShape shape{.tokens = 16, .experts = 300, .top_k = 20};
  shape.rule = {.sigmoid = true, .groups = 3, .groups_kept = 2};
  run_route("route, one block, sigmoid", shape, {"few_tables.h", "lay_out.h", "top_k.h"});
}
TEST(Mutation, SmallRoute) { run_route("route, small", {.tokens = 64, .experts = 300, .top_k = 8}); }
TEST(Mutation, LargeRoute) { run_route("route, large", {.tokens = 100, .experts = 300, .top_k = 20}); }
TEST(Mutation, LargestRoute) {
  run_route("route, scanned apart", {.tokens = 513, .experts = 260, .top_k = 17});
}

TEST(Mutation, TiledMma) {
  // Rings of equal depth, and a token ring that is the shallower one.
  for (const auto& [row, tokens] : {std::pair{"moe_gemm 128x64x128 w4a16-mma nvfp4", 64},
                                    std::pair{"moe_gemm 256x128x128 w4a16-mma nvfp4", 128}})
    run_subject({.name = row,
                 .layer = layer_of({320, 256, 3, 2}, 12),
                 .role = Role::prefill,
                 .tokens = 12,
                 .choice = rows_of(row, tokens),
                 .files = tile_files("moe_tokens.h")});
}

TEST(Mutation, TiledFp4) {
  run_subject({.name = "tile w4a4",
               .layer = layer_of({384, 256, 3, 2}, 12, Activations::w4a4),
               .role = Role::prefill,
               .tokens = 12,
               .choice = rows_of("moe_gemm 128x32x128 w4a4 nvfp4", 32),
               .files = tile_files("moe_tokens.h")});
}

// With a successor that starts late, schedules in which a lane of the loader that has nothing to copy fell
// behind by a lap of the ring: it would have waited for a parity that meant another phase. One of 1,500, seed
// 802, showed it.
TEST(Mutation, NoLaneOfTheFp4LoaderIsLapped) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.persistent_blocks = 1, .dependent_launch = true});
  SmallLayer layer(*machine, layer_of({576, 256, 3, 2}, 12, Activations::w4a4));
  Batch batch(layer,
              moe_layer::prepare_with(*machine, layer.request(Role::prefill, 12),
                                      rows_of("moe_gemm 128x16x256 w4a4 nvfp4", 16)),
              first_rows(12));
  const auto expected = batch.run();
  for (const SyncSite& site : device.executed_sites())
    if (site.op == SyncOp::release_successors && site.file == "moe_gemm.h") device.install({site});
  for (std::uint64_t seed = 800; seed < 808; ++seed) {
    device.set_seed(seed);
    EXPECT_EQ(noticed<std::uint16_t>([&] { return batch.run(); }, expected), "") << "seed " << seed;
  }
}

TEST(Mutation, TiledWgmma) {
  run_subject({.name = "tile wgmma",
               .arch = &plan::kSm90,
               .layer = layer_of({576, 256, 3, 2}, 12),
               .role = Role::prefill,
               .tokens = 12,
               .choice = rows_of("moe_gemm 256x64x128 w4a16-wgmma nvfp4", 64),
               .files = tile_files()});
}

TEST(Mutation, TiledWgmmaLongStagesAndManyTokens) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  // Two panels a stage, and more tokens of an expert than one round of the staging buffer holds.
  run_subject({.name = "tile wgmma, many tokens",
               .arch = &plan::kSm90,
               .layer = layer_of({896, 64, 2, 2}, 80),
               .role = Role::prefill,
               .tokens = 80,
               .choice = rows_of("moe_gemm 256x128x128 w4a16-wgmma nvfp4", 128),
               .files = tile_files()});
}

// A row whose operands these small layers do not have (MXFP4 tokens, bf16 and fp8 weights) is run alone.
// by_row: W4A4 tokens are gathered.
void run_row_alone(const plan::RowFacts& row, const plan::ArchFacts* arch, bool by_row = false) {
  SCOPED_TRACE(row.row);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = arch, .persistent_blocks = 1});
  verify::GemmCase test{row, moe::Op::plain, 256, 1024, {9, 0, 12}, 5};
  test.by_row = by_row;
  const Run<std::uint16_t> run = [&]() -> std::vector<std::uint16_t> {
    const verify::Result result = verify::run_gemm_case(*machine, test, true);
    if (!result.failure.empty()) throw std::runtime_error(result.failure);
    return {static_cast<std::uint16_t>(result.passed())};
  };
  EXPECT_EQ(run(), std::vector<std::uint16_t>{1});
  mutate_all<std::uint16_t>(device, row.row, row, kSurvivors, run, {});
}

TEST(Mutation, TiledFp8) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  for (const plan::RowFacts& row : machine->rows(kernels::RowKind::gemm))
    if (row.path == moe::W8a8Wgmma::name && (row.n == 64 || wants_all())) run_row_alone(row, &plan::kSm90);
}

TEST(Mutation, TiledFp8Mma) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  for (const plan::RowFacts& row : machine->rows(kernels::RowKind::gemm))
    if (row.path == moe::W8a8Mma::name && (row.n == 64 || wants_all())) run_row_alone(row, &plan::kSm120);
}

TEST(Mutation, TiledFp4ByRow) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  for (const plan::RowFacts& row : machine->rows(kernels::RowKind::gemm))
    if (row.row == "moe_gemm 128x32x128 w4a4 nvfp4" ||
        (wants_all() && row.kernel == "moe_gemm" && row.path == moe::W4a4::name))
      run_row_alone(row, &plan::kSm120, /*by_row=*/true);
}

// GEMM1 and GEMM2 of one layer, by rows of one path and format. Both have rings: where they are of two kinds,
// a ring's header is in one kernel of the layer, and what is caught in one hides nothing in the other. (The
// routing is in both, and the same.)
struct FewPair {
  const plan::RowFacts *gate_up, *down;
};

// Every row once, but for the clamped GEMM1, which is the only one of its kind: beside the fed GEMM2 the
// sites of fed_ring.h are in both. The same GEMM1 beside the other GEMM2, and the same GEMM2 without biases,
// have them alone.
std::vector<FewPair> few_pairs(const std::vector<plan::RowFacts>& gate_ups,
                               const std::vector<plan::RowFacts>& downs) {
  std::vector<FewPair> pairs;
  for (const plan::RowFacts& gate_up : gate_ups)
    for (const plan::RowFacts& down : downs)
      if (gate_up.path == down.path && gate_up.format == down.format && gate_up.clamps == down.clamps &&
          (gate_up.producer_warps != down.producer_warps || gate_up.clamps))
        pairs.push_back({&gate_up, &down});
  return pairs;
}

Subject few_subject(const FewPair& pair, const moe_layer::Shape& shape) {
  const plan::RowFacts& down = *pair.down;
  Subject subject;
  subject.name =
      fourfold::format("{} before {}, {}x{}", pair.gate_up->row, down.row, shape.hidden, shape.intermediate);
  subject.layer = layer_of(shape, 3, Activations::w4a16,
                           down.format == "mxfp4" ? WeightFormat::mxfp4 : WeightFormat::nvfp4);
  subject.layer.packed_for_w4a4 = down.path == moe::W4a16Fp4Order::name;
  subject.layer.clamped = down.clamps;
  subject.tokens = 3;
  subject.choice.few = true;
  subject.choice.tile_tokens = moe_few::kFewTokens;
  subject.choice.gate_up_row = pair.gate_up->row;
  subject.choice.down_row = down.row;
  return subject;
}

// One segment and several in either GEMM, the last of them short. What is fed has one lap of its rings here.
std::vector<Subject> first_laps(const FewPair& pair) {
  std::vector<Subject> subjects;
  for (const moe_layer::Shape shape :
       {moe_layer::Shape{128, 576, 3, 2}, {1088, 256, 3, 2}, {512, 512, 3, 2}}) {
    subjects.push_back(few_subject(pair, shape));
    subjects.back().other_files = {"fed_ring.h", "few_stream.h"};
  }
  return subjects;
}

// As FewTokensStreamed: with more copies than the rings of either GEMM hold, strips in several batches.
Subject later_laps(const FewPair& pair) {
  const auto is_fed = [](const plan::RowFacts& row) { return row.producer_warps > 0; };
  Subject subject = few_subject(pair, {576, 1088, 3, 2});
  subject.blocks = 8;
  subject.files = {"fed_ring.h", "record_ring.h", "few_down.h", "few_stream.h"};
  if (is_fed(*pair.gate_up) || is_fed(*pair.down)) subject.must_meet_lines = {"cta.wait(&ring.empty"};
  if (!is_fed(*pair.gate_up) || !is_fed(*pair.down))
    subject.must_meet_lines.push_back("cta.fence_async_proxy();  // the reads come before the copy");
  if (is_fed(*pair.gate_up)) subject.must_meet_lines.push_back("// the sums are read");
  if (is_fed(*pair.down)) subject.must_meet_lines.push_back("[&] { cta.wait_predecessors(); }");
  return subject;
}

TEST(Mutation, EveryFewRow) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs every row";
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  std::set<std::string> met, in_table;
  const auto rows_of_kind = [&](kernels::RowKind kind) {
    std::vector<plan::RowFacts> rows = machine->rows(kind);
    // Other ranking between the same meetings; OneBlockRouteOfSigmoidScores has its own.
    std::erase_if(rows, [](const plan::RowFacts& row) { return moe_route::is_any_rule_row(row.row); });
    for (const plan::RowFacts& row : rows) in_table.insert(row.row);
    return rows;
  };
  const auto gate_ups = rows_of_kind(kernels::RowKind::few_gate_up);
  const auto downs = rows_of_kind(kernels::RowKind::few_down);
  for (const FewPair& pair : few_pairs(gate_ups, downs)) {
    for (const Subject& subject : first_laps(pair)) run_subject(subject);
    run_subject(later_laps(pair));
    met.insert({pair.gate_up->row, pair.down->row});
  }
  EXPECT_EQ(met, in_table);
}

// The row of this width whose unrolled loop divides any K.
std::string row_for_any_k(const plan::RowFacts& row) {
  return moe::row_name("moe_stream", row.m, row.n, 64, row.path, row.format) +
         (row.clamps ? moe::kClampedName : "");
}

Subject subject_of(const plan::RowFacts& row, const plan::ArchFacts* arch) {
  const bool decode = row.role == "decode", fp4 = row.path == "w4a4";
  Subject subject;
  subject.name = row.row;
  subject.arch = arch;
  subject.role = decode ? Role::decode : Role::prefill;
  // Decode: two segments and three strips a block, so that warps share. Prefill: enough items to wrap the
  // deepest ring.
  subject.layer = layer_of(decode ? moe_layer::Shape{1024, 64, 3, 2} : moe_layer::Shape{576, 256, 3, 2}, 12,
                           fp4 ? Activations::w4a4 : Activations::w4a16,
                           row.format == "mxfp4" ? WeightFormat::mxfp4 : WeightFormat::nvfp4);
  subject.layer.packed_for_w4a4 = row.path == moe::W4a16Fp4Order::name;
  subject.layer.clamped = row.clamps;
  subject.tokens = decode ? 7 : 12;
  subject.choice = rows_of(row.row, row.n);
  if (decode) subject.choice.down_row = row_for_any_k(row);
  subject.files = decode ? std::set<std::string>{"moe_stream.h"} : tile_files();
  subject.blocks = decode ? 4 : 1;
  if (decode && row.n <= 16) subject.must_meet = {SyncOp::barrier_sync};  // wider rows share no strips
  return subject;
}

TEST(Mutation, EveryRow) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs every row; minutes";
  for (const auto* arch : {&plan::kSm120, &plan::kSm90}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    std::vector<std::function<void()>> rows;
    for (const plan::RowFacts& row : machine->rows(kernels::RowKind::gemm)) {
      if (arch == &plan::kSm90 && row.path.find("wgmma") == std::string_view::npos)
        continue;  // the others are the same rows
      if ((row.path == "w4a4" && row.format == "mxfp4") || row.format == "bf16" || row.format == "fp8")
        rows.push_back([&row, arch] { run_row_alone(row, arch); });
      else
        rows.push_back([&row, arch] { run_subject(subject_of(row, arch)); });
    }
    mutate_rows(rows);
  }
}

}  // namespace
}  // namespace fourfold::test
