// How `bench model`'s made-up weights route: over the experts as if every choice were equally likely, which
// is what its floor and the plans assume; and that what a GPU's step used is counted as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>

#include "backend/cost.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/reference/reference.h"
#include "base/random.h"
#include "base/token_grain.h"
#include "cli/bench_gpu_model.h"
#include "cli/bench_model_weights.h"
#include "kernels/launch/sim_machine.h"
#include "model/forward.h"

namespace fourfold::cli {
namespace {

using backend::Pass;
using backend::Role;

// A published shape with its own experts and rules of choice, everything else small. Two layers with experts
// behind the first dense one, so that an input has been through a whole layer.
checkpoint::ModelShape narrowed(checkpoint::ModelShape shape) {
  shape.vocab = 4096;
  shape.hidden = 512;
  shape.layers = std::max<std::int64_t>(4, shape.full_interval);
  shape.heads = 4;
  if (shape.kv_heads > 0) shape.kv_heads = 2;
  if (shape.head_dim > 0) shape.head_dim = 64;
  if (shape.key_heads > 0) shape.key_heads = 2, shape.value_heads = 4, shape.delta_dim = 64;
  shape.intermediate = 128;
  if (shape.shared > 0) shape.shared = 128;
  shape.dense_layers = std::min<std::int64_t>(shape.dense_layers, 1);
  if (shape.dense_layers > 0) shape.dense_intermediate = 256;
  if (shape.latent.latent_dim > 0)
    shape.latent.query_rank = 128, shape.latent.latent_dim = 128, shape.latent.plain_dim = 64,
    shape.latent.turned_dim = 64, shape.latent.value_dim = 64;
  shape.positions = 4096;
  shape.mtp = false;
  return shape;
}

backend::Capacity room_for_users(int users) {
  return {.page_count = users, .page_tokens = kTokenGrain, .state_slot_count = users, .row_count = users};
}

// One step of so many users, each at the same position with a token of its own, as Users has them.
class Step {
 public:
  Step(int users, std::int64_t vocab) : vocab_(vocab), pages_(static_cast<std::size_t>(users)) {
    std::iota(pages_.begin(), pages_.end(), 0);
    tokens_.resize(pages_.size());
  }
  void run(backend::Prepared& prepared) {
    sequences_.clear();
    for (std::int32_t user = 0; user < std::ssize(pages_); ++user) {
      tokens_[static_cast<std::size_t>(user)] =
          static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(vocab_)));
      sequences_.push_back({1, position_, user, user, 1, Role::decode, 0});
    }
    prepared.run(Pass::main, {tokens_, sequences_, pages_, {}, {}}, {});
    ++position_;
  }

 private:
  Random random_{1};
  std::int64_t position_ = 0, vocab_;
  std::vector<std::int32_t> pages_, tokens_;
  std::vector<backend::SequenceRows> sequences_;
};

// Different experts in each layer's choice of the last run.
std::vector<int> used_experts(const backend::Prepared& prepared) {
  std::vector<int> counts;
  for (const backend::Op& op : prepared.program().ops(Pass::main))
    if (const auto* choice = std::get_if<backend::TopKExperts>(&op)) {
      const auto chosen = prepared.value(choice->experts);
      counts.push_back(static_cast<int>(std::set<float>(chosen.begin(), chosen.end()).size()));
    }
  return counts;
}

// Rows choose k of E independently. An expert is left out by all of them with p = (1 - k/E)^rows; that one is
// left out makes it less likely that another is, so the variance of the number used is at most E p (1 - p),
// and that of a mean over layers no more, however they depend on each other. Four deviations are 1 in 16,000
// for the normal law that such sums are near. A router whose rows agree falls short of it by far.
TEST(BenchRouting, MadeUpWeightsSpreadOverTheExperts) {
  for (const checkpoint::ModelShape& published : checkpoint::published_shapes()) {
    const checkpoint::ModelShape shape = narrowed(published);
    const checkpoint::ModelConfig config = config_of(shape, shape.layers);
    const RandomWeights random(config, WeightFormat::bf16);
    for (const int users : {16, 64}) {
      const auto prepared =
          backend::make_cpu_backend({.threads = 2, .keep_values = true})
              ->prepare(model::build_program(config, random.weights(), model::Activations::w4a16),
                        room_for_users(users));
      Step step(users, config.vocab_size);
      for (int i = 0; i < 3; ++i) step.run(*prepared);
      const std::vector<int> used = used_experts(*prepared);
      ASSERT_EQ(std::ssize(used), shape.layers - shape.dense_layers) << shape.name;
      const double mean = std::accumulate(used.begin(), used.end(), 0.0) / static_cast<double>(used.size());
      const auto experts = static_cast<double>(shape.experts),
                 chosen = static_cast<double>(shape.experts_per_token);
      const double wanted = backend::spread_experts(experts, chosen, users);
      const double left_out = std::pow(1 - chosen / experts, users);
      const double bound = 4 * std::sqrt(experts * left_out * (1 - left_out));
      std::printf("%-16s %2d rows: %6.1f of %3.0f experts, %6.1f +- %.1f expected\n",
                  std::string(shape.name).c_str(), users, mean, experts, wanted, bound);
      EXPECT_NEAR(mean, wanted, bound) << shape.name << " with " << users;
    }
  }
}

// Rows that are the same use the experts of one; others more, and no more than all choose.
TEST(BenchRouting, CountsWhatAStepUsed) {
  constexpr int users = 4;
  for (const char* name : {"tiny", "tiny-glm", "tiny-gpt-oss", "tiny-deepseek"}) {
    const checkpoint::ModelShape& shape = checkpoint::find_shape(name);
    const checkpoint::ModelConfig config = config_of(shape, shape.layers);
    const RandomWeights random(config, WeightFormat::bf16);
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
    const auto prepared =
        backend::make_gpu_backend(*machine, {})
            ->prepare(model::build_program(config, random.weights(), model::Activations::w4a16),
                      room_for_users(users));
    const auto layers = static_cast<std::size_t>(shape.layers - shape.dense_layers);
    const auto chosen = static_cast<int>(shape.experts_per_token);
    Step(users, 1).run(*prepared);
    EXPECT_EQ(distinct_experts(*prepared, users), std::vector<int>(layers, chosen)) << name;
    Step(users, config.vocab_size).run(*prepared);
    const std::vector<int> used = distinct_experts(*prepared, users);
    ASSERT_EQ(used.size(), layers) << name;
    EXPECT_TRUE(distinct_experts(*prepared, users + 1).empty()) << "these rows did not run together";
    for (const int count : used) {
      EXPECT_GT(count, chosen) << name;
      EXPECT_LE(count, std::min<std::int64_t>(users * chosen, shape.experts)) << name;
    }
  }
}

BenchFit fit_on_h200(const std::string& shape, const std::string& contexts) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90, .persistent_blocks = 132});
  BenchModelOptions options;
  options.backend = "cuda";
  options.shape = shape;
  options.dense = "bf16";
  options.users = "1,16,64";
  options.contexts = contexts;
  options.prompt = 2048;
  return fit_bench_gpu_model(options, *machine, 142'604'386'304);  // 95 % of it
}

// 64 users have no 2,048 tokens each because one prompt has.
TEST(BenchFit, ReservesWhatTheLinesNeed) {
  const BenchFit fit = fit_on_h200("minimax-m2", "0");
  EXPECT_EQ(fit.left_out, "");
  EXPECT_LE(fit.bytes, 142'604'386'304);
  EXPECT_EQ(fit.users, (std::vector<int>{1, 16, 64}));
}

// 254 KB a token: 16 times 8,192 of them are 33 GB beside 134 of weights.
TEST(BenchFit, LinesThatDoNotFitAreNamed) {
  const BenchFit fit = fit_on_h200("minimax-m2", "0,8k");
  EXPECT_EQ(fit.left_out.find("16 users with 8,192 tokens of context ("), 0u) << fit.left_out;
  EXPECT_NE(fit.left_out.find(", 64 users with 8,192 tokens of context ("), std::string::npos)
      << fit.left_out;
  EXPECT_EQ(fit.users, std::vector<int>{1});
  EXPECT_LE(fit.bytes, 142'604'386'304);
  // Where nothing fits, the bench stays whole, and what it needs says so.
  const BenchFit none = fit_on_h200("397b", "0");
  EXPECT_EQ(none.left_out, "");
  EXPECT_GT(none.bytes, 142'604'386'304);
}

}  // namespace
}  // namespace fourfold::cli
