// Every published shape through the GPU backend, without a GPU: each launch of generated rows, of prompts and
// of drafts is chosen and counted, none is run. What a kernel or a check refuses shows here, before a GPU is
// there.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/token_grain.h"
#include "cli/bench_model_weights.h"
#include "kernels/launch/sim_machine.h"
#include "library/activations.h"
#include "model/forward.h"
#include "model/shard.h"
#include "plan/kernel_work.h"

namespace fourfold::cli {
namespace {

using backend::Pass;
using backend::Role;
using backend::StepRows;

// Layers with every kind of mixer and MLP that the shape has: the dense ones, then a whole turn.
std::int64_t walked_layers(const checkpoint::ModelShape& shape) {
  const std::int64_t turn = std::max<std::int64_t>(shape.full_interval, 2);  // gpt-oss has windows in turn
  return std::min(shape.layers, shape.dense_layers + turn);
}

std::vector<StepRows> steps_of(const checkpoint::ModelShape& shape) {
  std::vector<StepRows> steps;
  for (const int users : {1, 2, 4, 16, 64, 256}) steps.push_back({Pass::main, users, 1, Role::decode, 100});
  for (const int rows : {1, 64, 2048}) steps.push_back({Pass::main, 1, rows, Role::prefill, 0});
  steps.push_back({Pass::main, 4, 512, Role::prefill, 4096});
  if (!shape.mtp) return steps;
  for (const int users : {1, 16}) {
    steps.push_back({Pass::main, users, 3, Role::decode, 100});
    steps.push_back({Pass::draft, users, 3, Role::decode, 100});
    steps.push_back({Pass::draft, users, 1, Role::decode, 100});
  }
  steps.push_back({Pass::draft, 1, 2048, Role::prefill, 0});
  return steps;
}

struct Walk {
  const plan::ArchFacts& arch;
  model::Activations activations;
};

void expect_walk(const checkpoint::ModelShape& shape, const checkpoint::ModelConfig& config,
                 const RandomWeights& random, WeightFormat dense, const Walk& walk) {
  const auto& [arch, activations] = walk;
  SCOPED_TRACE(fourfold::format("{} on {}, dense {}, {}", shape.name, arch.name, format_name(dense),
                                library::activations_name(activations)));
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch, .persistent_blocks = 132});
  const backend::Capacity capacity{
      .page_count = 64, .page_tokens = kTokenGrain, .state_slot_count = 256, .row_count = 2048};
  const std::vector<StepRows> steps = steps_of(shape);
  try {
    backend::Program program = model::build_program(config, random.weights(), activations);
    library::take_fp8_rows(program, {.dense = "keep"}, activations);
    const auto work = step_work(program, capacity, *machine, steps);
    ASSERT_EQ(work.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_GT(work[i].size(), 0u) << "step " << i;
      double bytes = 0;
      for (const plan::KernelWork& kernel : work[i]) bytes += kernel.weight_bytes;
      EXPECT_GT(bytes, 0) << "step " << i;
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

// Of the same weights: making them up takes longer than walking.
void expect_walks(const checkpoint::ModelShape& shape, WeightFormat dense, const std::vector<Walk>& walks) {
  const checkpoint::ModelConfig config = config_of(shape, walked_layers(shape));
  const RandomWeights random(config, dense, shape.mtp);
  for (const Walk& walk : walks) expect_walk(shape, config, random, dense, walk);
}

// gpt-oss's biases are on matrices that its release has in bf16; in NVFP4 with FP4 inputs they are refused,
// with the advice that is walked here.
model::Activations walked_activations(const checkpoint::ModelShape& shape, const plan::ArchFacts& arch,
                                      WeightFormat dense) {
  if (shape.family->name == "gpt-oss" && dense == WeightFormat::nvfp4) return model::Activations::w4a16;
  return library::served_activations(arch);
}

TEST(EveryShape, WalksItsLaunches) {
  for (const checkpoint::ModelShape& shape : checkpoint::published_shapes())
    for (const WeightFormat dense : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
      expect_walks(shape, dense,
                   {{plan::kSm90, walked_activations(shape, plan::kSm90, dense)},
                    {plan::kSm120, walked_activations(shape, plan::kSm120, dense)}});
}

// FP8 prompts, which are asked for by name.
TEST(EveryShape, WalksFp8Prompts) {
  for (const checkpoint::ModelShape& shape : checkpoint::published_shapes())
    expect_walks(shape, WeightFormat::fp8, {{plan::kSm90, model::Activations::w8a8}});
}

// The rank of four that benches have.
TEST(EveryShape, WalksARank) {
  const checkpoint::ModelShape rank = bench_shape("397b-tp4");
  expect_walks(rank, WeightFormat::bf16,
               {{plan::kSm90, library::served_activations(plan::kSm90)},
                {plan::kSm120, library::served_activations(plan::kSm120)}});
}

// gpt-oss's 45 records are not divided by two, four or eight: the first rank and the last have kernels of
// their own width.
TEST(EveryShape, WalksRanksOfGptOss) {
  for (const int ranks : {2, 4, 8})
    for (const int rank : {0, ranks - 1}) {
      checkpoint::ModelShape shape = checkpoint::find_shape("gpt-oss-120b");
      shape.intermediate = model::share_of_width(shape.intermediate, {rank, ranks}).count;
      for (std::int64_t* cut : {&shape.vocab, &shape.heads, &shape.kv_heads}) *cut /= ranks;
      SCOPED_TRACE(shape.intermediate);
      expect_walks(shape, WeightFormat::bf16,
                   {{plan::kSm90, library::served_activations(plan::kSm90)},
                    {plan::kSm120, library::served_activations(plan::kSm120)}});
    }
}

// What no release has: named by its field of the config, with what can be done.
TEST(EveryShape, RefusesWithTheField) {
  const auto refusal = [](const checkpoint::ModelShape& shape) -> std::string {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device);
    const checkpoint::ModelConfig config = config_of(shape, shape.layers);
    const RandomWeights random(config, WeightFormat::bf16);
    try {
      plan_memory(model::build_program(config, random.weights(), model::Activations::w4a16),
                  {.page_count = 1, .page_tokens = kTokenGrain, .state_slot_count = 1, .row_count = 1},
                  *machine);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported_op);
      EXPECT_EQ(error.hint(), "Run it with --backend cpu.");
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal(checkpoint::find_shape("tiny-qwen3-moe")),
            "layers.0.attention.cache: heads of 32 columns (head_dim of config.json); the GPU backend has "
            "kernels for heads of 64, 128, 256");
  checkpoint::ModelShape narrow = checkpoint::find_shape("tiny-gpt-oss-odd");
  EXPECT_EQ(refusal(narrow), "taken");
  narrow.hidden = 160;  // rows of the residual stream are whole records of 64
  EXPECT_EQ(refusal(narrow),
            "hidden_size 160 of config.json: the GPU backend has kernels for multiples of 64");
}

}  // namespace
}  // namespace fourfold::cli
