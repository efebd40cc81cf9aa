// Ways through a step that may be switched off (backend/cuda/step/ways.h): the same bits, fewer kernels or
// blocks.
#include "backend/cuda/step/short_grid.h"

#include "tests/model/cuda/simulated.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using backend::cuda::StepWays;

// Mixers of 768 columns: two segments of K, so that more than eight rows have sums to add up.
checkpoint::ModelShape wide_shape() {
  checkpoint::ModelShape shape = checkpoint::find_shape("tiny");
  shape.heads = 12;
  shape.key_heads = 6;
  shape.value_heads = 12;
  shape.delta_dim = 64;
  return shape;
}

struct Ran {
  std::vector<float> logits;
  int norms = 0, sums = 0, sum_norms = 0;  // kernels of the steps with many rows
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

TEST(StepWays, GiveTheSameBits) {
  const MadeModel model(wide_shape(), "bf16");
  const Ran before = run(model.loaded, {.grids_by_context = false, .sums_norm = false}),
            after = run(model.loaded, {});
  EXPECT_EQ(before.logits, after.logits);
  // A sum and a norm in each of four layers are one kernel, in both steps.
  EXPECT_EQ(before.sum_norms, 0);
  EXPECT_EQ(after.sum_norms, 8);
  EXPECT_EQ(before.norms - after.norms, 8);
  EXPECT_EQ(before.sums - after.sums, 8);
}

// ---- heads inside attention ----

struct Joined {
  std::vector<float> logits;
  int prepares = 0, attends = 0, joined = 0;  // kernels of the steps after the prompts
};

// Three sequences, of which one comes to the border of a page: a row of each at once (launched one by one,
// then recorded), one alone, and a step in which one of them has two rows.
Joined run_joined(const Loaded& model, backend::KvFormat kv, bool joins) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm120, .sms = 4});
  const auto prepared = backend::make_gpu_backend(*machine, {.ways = {.joins_heads = joins}})
                            ->prepare(Simulated::program_of(model, kv, Activations::w4a16), kTenSequences);
  Sequences sequences(*prepared, 5);
  Random random(11);
  Joined ran;
  const auto keep = [&](const std::vector<Sequences::Rows>& rows) {
    const std::vector<float> logits = sequences.run(rows);
    ran.logits.insert(ran.logits.end(), logits.begin(), logits.end());
  };
  std::int64_t length[] = {3, 62, 40};
  std::vector<Sequences::Rows> prompts;
  for (std::int32_t slot = 0; slot < 3; ++slot)
    prompts.push_back({slot, 0, random_tokens(random, length[slot]), Role::prefill});
  keep(prompts);
  machine->listen([&](std::string_view kernel) {
    ran.prepares += kernel.starts_with("prepare ");
    ran.attends += kernel.starts_with("attend ");
    ran.joined += kernel.starts_with("attend_heads ");
  });
  const auto step = [&](std::vector<std::pair<std::int32_t, std::int64_t>> rows_of) {
    std::vector<Sequences::Rows> rows;
    for (const auto& [slot, count] : rows_of) {
      rows.push_back({slot, length[slot], random_tokens(random, count), Role::decode});
      length[slot] += count;
    }
    keep(rows);
  };
  for (int i = 0; i < 3; ++i) step({{0, 1}, {1, 1}, {2, 1}});
  step({{1, 1}});
  step({{0, 1}, {1, 2}});
  step({{1, 1}, {2, 1}});
  return ran;
}

struct JoinedCase {
  const char* shape;
  int head_dim;  // 0: the shape's own
  backend::KvFormat kv;
};
void PrintTo(const JoinedCase& test, std::ostream* out) { *out << test.shape << " " << test.head_dim; }

class JoinedHeads : public testing::TestWithParam<JoinedCase> {};

TEST_P(JoinedHeads, GiveTheSameBits) {
  checkpoint::ModelShape shape = checkpoint::find_shape(GetParam().shape);
  if (GetParam().head_dim > 0) shape.head_dim = GetParam().head_dim;
  const MadeModel model(shape, "bf16");
  const Joined apart = run_joined(model.loaded, GetParam().kv, false),
               joined = run_joined(model.loaded, GetParam().kv, true);
  EXPECT_EQ(apart.logits, joined.logits);
  EXPECT_EQ(apart.joined, 0);
  EXPECT_EQ(apart.prepares, apart.attends);
  // The step with two rows of a sequence is as before.
  EXPECT_GT(joined.attends, 0);
  EXPECT_GT(joined.joined, joined.attends);
  EXPECT_EQ(joined.prepares, joined.attends);
  EXPECT_EQ(joined.joined, apart.attends - joined.attends);
}

INSTANTIATE_TEST_SUITE_P(All, JoinedHeads,
                         testing::Values(JoinedCase{"tiny", 256, backend::KvFormat::bf16},
                                         JoinedCase{"tiny-qwen3-moe", 128, backend::KvFormat::bf16},
                                         JoinedCase{"tiny-glm", 128, backend::KvFormat::fp8},
                                         JoinedCase{"tiny-gpt-oss", 0, backend::KvFormat::bf16}));

TEST(StepWays, AreNamed) {
  using backend::cuda::parse_ways;
  EXPECT_EQ(to_text(StepWays{}), "grids_by_context,sums_norm");
  EXPECT_EQ(parse_ways(to_text(StepWays{})), StepWays{});
  const StepWays one{.grids_by_context = false, .sums_norm = false, .joins_heads = true};
  EXPECT_EQ(parse_ways("joins_heads"), one);
  EXPECT_EQ(to_text(one), "joins_heads");
  EXPECT_EQ(to_text(parse_ways("none")), "none");
  for (const char* wrong : {"", "joins_heads,", "sums norm", "none,sums_norm"})
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
