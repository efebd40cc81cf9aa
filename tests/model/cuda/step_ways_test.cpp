// Ways through a step that may be switched off (backend/cuda/step/ways.h): the same bits, fewer kernels or
// blocks.
#include "backend/cuda/step/short_grid.h"

#include <map>
#include <string_view>

#include "tests/model/cuda/simulated.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"

namespace fourfold::model {
namespace {

using backend::cuda::StepWays;

// Mixers of 768 columns: two segments of K, so that more than eight rows have sums to add up.
checkpoint::ModelShape wide_shape() {
  checkpoint::ModelShape shape = checkpoint::find_shape("tiny");
  shape.layers = shape.full_interval = 2;  // DeltaNet, attention
  shape.heads = 12;
  shape.key_heads = 6;
  shape.value_heads = 12;
  shape.delta_dim = 64;
  return shape;
}

struct Ran {
  std::vector<float> logits;
  int norms = 0, sums = 0, sum_norms = 0, pairs = 0, pair_sums = 0;  // kernels of the steps with many rows
  int multiplies = 0, combines = 0, combine_norms = 0, routes = 0, tables = 0;
};

// Nine prompts, of which one is longer than a page; then a row of each at once, and of one alone.
Ran run(const Loaded& model, const StepWays& ways) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90, .sms = 40});
  const auto prepared =
      backend::make_gpu_backend(*machine, {.ways = ways})
          ->prepare(Simulated::program_of(model, backend::KvFormat::bf16, Activations::w4a16), kTenSequences);
  Sequences sequences(*prepared, 5);
  Random random(7);
  Ran ran;
  const auto keep = [&](const std::vector<Sequences::Rows>& rows) {
    const std::vector<float> logits = sequences.run(rows);
    ran.logits.insert(ran.logits.end(), logits.begin(), logits.end());
  };
  const auto length = [](std::int32_t slot) -> std::int64_t { return slot == 3 ? 66 : 2; };
  std::vector<Sequences::Rows> prompts;
  for (std::int32_t slot = 0; slot < 9; ++slot)
    prompts.push_back({slot, 0, random_tokens(random, length(slot)), Role::prefill});
  keep(prompts);
  machine->listen([&](std::string_view kernel) {
    ran.norms += kernel == "norm_rows";
    ran.sums += kernel.starts_with("dense_sum ");
    ran.sum_norms += kernel.starts_with("dense_sum_norm ");
    ran.multiplies += kernel.starts_with("dense_many ");
    ran.combines += kernel == "combine";
    ran.routes += kernel.starts_with("route_");
    ran.tables += kernel.starts_with("dense_many_table ");
    ran.combine_norms += kernel.starts_with("combine_norm ");
    ran.pairs += kernel.starts_with("dense_many_pair ");
    ran.pair_sums += kernel.starts_with("dense_sum_pair ");
  });
  // Two steps: launched one by one, and recorded.
  for (std::int64_t step = 0; step < 2; ++step) {
    std::vector<Sequences::Rows> rows;
    for (std::int32_t slot = 0; slot < 9; ++slot)
      rows.push_back({slot, length(slot) + step, random_tokens(random, 1), Role::decode});
    keep(rows);
  }
  machine->listen(nullptr);
  for (std::int64_t step = 2; step < 4; ++step)
    keep({{3, length(3) + step, random_tokens(random, 1), Role::decode}});
  return ran;
}

// One step of nine rows with all of them; then without each.
TEST(StepWays, GiveTheSameBits) {
  const MadeModel model(wide_shape(), "bf16");
  const Ran after = run(model.loaded, {});
  {
    SCOPED_TRACE("a sum and a norm in each of two layers are one kernel, in both steps");
    const Ran before = run(model.loaded, {.grids_by_context = false, .sums_norm = false});
    EXPECT_EQ(before.logits, after.logits);
    EXPECT_EQ(before.sum_norms, 0);
    EXPECT_EQ(after.sum_norms, 4);
    EXPECT_EQ(before.norms - after.norms, 4);
    EXPECT_EQ(before.sums - after.sums, 4);
  }
  {
    SCOPED_TRACE("behind the first layer another one reads normed rows; behind the last the head does");
    const Ran before = run(model.loaded, {.combines_norm = false});
    EXPECT_EQ(before.logits, after.logits);
    EXPECT_EQ(before.combine_norms, 0);
    EXPECT_EQ(before.combines, 4);
    EXPECT_EQ(after.combine_norms, 2);
    EXPECT_EQ(after.combines, 2);
    EXPECT_EQ(before.norms - after.norms, 2);
  }
  {
    SCOPED_TRACE("a table beside a shared expert, whose rows have one segment of columns");
    const Ran before = run(model.loaded, {.many_tables = false});
    EXPECT_EQ(before.logits, after.logits);
    EXPECT_EQ(before.tables, 0);
    EXPECT_EQ(before.routes, 4);
    EXPECT_EQ(after.tables, 4);
    EXPECT_EQ(after.routes, 0);
    EXPECT_EQ(before.multiplies - after.multiplies, 4);
  }
}

// A bf16 router beside an FP4 shared expert, and rows of 576 columns, two segments of K: the pairs of two
// layers, in two steps. (./dev test has the pair alone: kernels/dense_many_test.cpp.)
TEST(StepWays, PairsOfManyRowsGiveTheSameBits) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  checkpoint::ModelShape shape = wide_shape();
  shape.hidden = 576;
  const MadeModel model(shape, "modelopt-mixed");
  const Ran before = run(model.loaded, {.pairs_many = false}), after = run(model.loaded, {});
  EXPECT_EQ(before.logits, after.logits);
  EXPECT_EQ(before.pairs + before.pair_sums, 0);
  EXPECT_EQ(after.pairs, 4);
  EXPECT_EQ(after.pair_sums, after.pairs);
  EXPECT_EQ(before.multiplies - after.multiplies, 2 * after.pairs);
  EXPECT_EQ(before.sums - after.sums, 2 * after.pairs);
  EXPECT_EQ(before.norms, after.norms);
}

// A prompt; then one row of it alone, launched and recorded, two and nine at once. Counted: the launches of a
// step of so many rows.
struct LatentRun {
  std::vector<float> logits;
  std::map<std::string, int> one, nine;
};

LatentRun run_latent(const Loaded& model, const StepWays& ways, const plan::ArchFacts& arch) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch, .sms = 40});
  const auto prepared =
      backend::make_gpu_backend(*machine, {.ways = ways})
          ->prepare(Simulated::program_of(model, backend::KvFormat::bf16, Activations::w4a16), kTenSequences);
  Sequences sequences(*prepared, 5);
  Random random(9);
  LatentRun ran;
  std::int64_t position = 0;
  const auto keep = [&](std::int64_t count, Role role) {
    const std::vector<float> logits = sequences.run({{3, position, random_tokens(random, count), role}});
    ran.logits.insert(ran.logits.end(), logits.begin(), logits.end());
    position += count;
  };
  // By the first word; not to be taken for the experts' combine.
  const auto count_to = [&](std::map<std::string, int>& counts) {
    machine->listen([&](std::string_view kernel) {
      if (kernel.starts_with("combine splits")) kernel = "combine_splits";
      ++counts[std::string(kernel.substr(0, kernel.find(' ')))];
    });
  };
  keep(62, Role::prefill);
  count_to(ran.one);
  keep(1, Role::decode);
  machine->listen(nullptr);
  keep(1, Role::decode);
  keep(2, Role::decode);
  count_to(ran.nine);
  keep(9, Role::decode);
  machine->listen(nullptr);
  return ran;
}

// Three layers. With nine rows the query's latent is normed in front, with one by its matrix; a latent that
// is narrower than its matrix is packed, or none, goes its own way.
TEST(StepWays, JoinedLaunchesOfLatentAttentionGiveTheSameBits) {
  struct Case {
    const char* shape;
    const plan::ArchFacts* arch;
    bool in_long_alone;
  };
  for (const auto& [shape, arch, in_long_alone] :
       {Case{"tiny-mistral", &plan::kSm90, true}, Case{"tiny-mistral", &plan::kSm120, true},
        Case{"tiny-mistral-odd", &plan::kSm90, false}, Case{"tiny-mistral-odd", &plan::kSm120, true},
        Case{"tiny-deepseek-odd", &plan::kSm90, false}, Case{"tiny-deepseek-odd", &plan::kSm120, true}}) {
    if (in_long_alone && !test::wants_all()) continue;
    SCOPED_TRACE(shape);
    const MadeModel model(checkpoint::find_shape(shape), "bf16");
    LatentRun before = run_latent(model.loaded, {.grids_by_context = false, .joins_latent = false}, *arch),
              after = run_latent(model.loaded, {}, *arch);
    EXPECT_EQ(before.logits, after.logits);
    const int layers = before.one["attend_latent"];
    EXPECT_EQ(before.one["latent_rows"], layers);
    EXPECT_EQ(before.one["head_linear"], 2 * layers);
    EXPECT_EQ(before.one["absorb_queries"] + before.one["combine_expand"], 0);
    for (auto* counts : {&after.one, &after.nine}) {
      EXPECT_EQ((*counts)["absorb_queries"], layers);
      EXPECT_EQ((*counts)["combine_expand"], layers);
      EXPECT_EQ((*counts)["turn_queries"] + (*counts)["head_linear"] + (*counts)["combine_splits"], 0);
    }
    const bool is_packed = std::string_view(shape) == "tiny-mistral";
    const bool has_latent = std::string_view(shape) != "tiny-deepseek-odd";
    EXPECT_EQ(after.one["latent_rows"], has_latent && !is_packed ? layers : 0);
    EXPECT_EQ(after.nine["latent_rows"], has_latent ? layers : 0);
  }
}

TEST(StepWays, AreNamed) {
  using backend::cuda::parse_ways;
  EXPECT_EQ(to_text(StepWays{}),
            "grids_by_context,sums_norm,pairs_many,combines_norm,many_tables,joins_latent");
  EXPECT_EQ(parse_ways(to_text(StepWays{})), StepWays{});
  const StepWays one{.grids_by_context = false,
                     .sums_norm = true,
                     .pairs_many = false,
                     .combines_norm = false,
                     .many_tables = false,
                     .joins_latent = false};
  EXPECT_EQ(parse_ways("sums_norm"), one);
  EXPECT_EQ(to_text(one), "sums_norm");
  EXPECT_EQ(to_text(parse_ways("none")), "none");
  for (const char* wrong : {"", "sums_norm,", "sums norm", "none,sums_norm"})
    checkpoint::expect_error(Code::invalid_request, {"is no way through a step"}, [&] { parse_ways(wrong); });
}

// 16 heads and two KV heads, as the 35B has them, on 132 SMs.
TEST(StepWays, ShortContextsHaveABlockASplit) {
  using backend::cuda::short_grid;
  EXPECT_EQ(short_grid(264, 1, 1, 16, 2, 16), 32) << "16 splits of 64 positions, two KV heads";
  EXPECT_EQ(short_grid(264, 1, 6, 16, 2, 64), 32) << "six rows are one tile of 64 vectors";
  EXPECT_EQ(short_grid(264, 1, 6, 16, 2, 16), 96) << "or three of 16";
  EXPECT_EQ(short_grid(264, 8, 1, 16, 2, 16), 256);
  EXPECT_EQ(short_grid(132, 8, 1, 16, 2, 16), 132) << "not more than was asked for";
}

}  // namespace
}  // namespace fourfold::model
