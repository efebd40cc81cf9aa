// The other families on the simulated GPU, from embedding to logits: against what Hugging Face transformers
// computed (tests/golden/families), on one rank and on two, and the same bits for a row in every batch.
#include <optional>
#include <vector>

#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "tests/model/cuda/simulated.h"
#include "tests/model/quantised_models.h"
#include "tests/support/long_test.h"
#include "tests/support/sim_ranks.h"

namespace fourfold::model {
namespace {

using checkpoint::TempFolder;

struct GpuFamily {
  std::string shape;
  std::uint64_t seed = 1;
  std::string scheme = "bf16";
  std::string reference() const {
    if (scheme != "bf16") return format("{}-{}", shape, scheme);
    return seed == 1 ? shape : format("{}-seed{}", shape, seed);
  }
};
void PrintTo(const GpuFamily& family, std::ostream* out) { *out << family.reference(); }

class GpuFamilies : public testing::TestWithParam<GpuFamily> {
 protected:
  GpuFamilies() {
    const GpuFamily& family = GetParam();
    if (family.scheme == "bf16" || family.scheme == "mxfp4")
      make_model(temp_.path() / "model", family.shape, family.scheme, family.seed);
    else
      make_quantised(temp_.path() / "model", {family.shape, family.scheme});
  }
  const Loaded& model() {
    if (!loaded_) loaded_.emplace(temp_.path() / "model");
    return *loaded_;
  }
  evaluate::ReferenceFile reference() {
    return evaluate::ReferenceFile(family_reference(GetParam().reference()),
                                   model().program(Activations::w4a16));
  }
  // Bounds come from the whole program, also where ranks have parts of it.
  void expect_fine(backend::Prepared& prepared, const evaluate::ReferenceFile& reference) {
    const evaluate::Comparison result =
        evaluate::compare(prepared, model().program(Activations::w4a16), reference);
    for (const evaluate::NumberDifference& item : result.numbers)
      EXPECT_TRUE(item.fine()) << item.prompt << " " << item.what << ": " << item.largest << " of "
                               << item.largest_bound << ", " << item.typical << " of " << item.typical_bound;
    for (const evaluate::TokenDifference& item : result.tokens)
      EXPECT_TRUE(item.fine()) << item.prompt << " " << item.what << ": " << item.same << " of "
                               << item.count;
    EXPECT_FALSE(result.numbers.empty());
  }

 private:
  TempFolder temp_;
  std::optional<Loaded> loaded_;
};
// ./dev test runs the odd shapes, whose heads are no power of two; --long also even ones and second seeds.
std::vector<GpuFamily> families() {
  std::vector<GpuFamily> out = {{"tiny-glm-odd"},      {"tiny-minimax-odd"}, {"tiny-gpt-oss-odd", 1, "mxfp4"},
                                {"tiny-deepseek-odd"}, {"tiny-mistral"},     {"tiny-gpt-oss-odd"}};
  if (test::wants_all())
    out.insert(out.end(), {{"tiny-glm"},
                           {"tiny-glm", 2},
                           {"tiny-minimax"},
                           {"tiny-minimax", 2},
                           {"tiny-gpt-oss"},
                           {"tiny-gpt-oss", 1, "mxfp4"},
                           {"tiny-gpt-oss", 2},
                           {"tiny-deepseek"},
                           {"tiny-kimi"},
                           {"tiny-mistral-odd"},
                           {"tiny-mistral", 2}});
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, GpuFamilies, testing::ValuesIn(families()));

TEST_P(GpuFamilies, AreWithinTheirBounds) {
  const evaluate::ReferenceFile wanted = reference();
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90}) {
    // ./dev test has Hopper where its kernels are others; --long for all.
    if (arch == &plan::kSm90 && !model().config.latent && !test::wants_all()) continue;
    SCOPED_TRACE(arch->name);
    Simulated gpu(*arch);
    expect_fine(*gpu.prepare(model(), evaluate::trace_capacity(wanted.prompts()), true), wanted);
  }
}

// ./dev test has heads that are no power of two, MXFP4 among them, which is cut by its blocks; --long all.
TEST_P(GpuFamilies, OnTwoRanksAreWithinTheirBounds) {
  if (!test::wants_all() && !GetParam().shape.ends_with("-odd")) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  const evaluate::ReferenceFile wanted = reference();
  const auto all = std::make_shared<backend::SimRanks>(2, all_reduce::ExchangeOptions{.wait_seconds = 600});
  expect_fine(*backend::prepare_sim(model(), all, evaluate::trace_capacity(wanted.prompts())), wanted);
}

// Prompts over a latent cache have kernels of their own on Hopper. ./dev test has windows and latent vectors
// in random batches (random_batches_test.cpp), and a plain cache in gpu_backend_test.cpp.
TEST_P(GpuFamilies, ARowHasTheSameBitsInEveryBatch) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  expect_same_bits(model(), Activations::w4a16);
  if (model().config.latent) expect_same_bits(model(), Activations::w4a16, plan::kSm90);
}

// Quantised as packages and releases have it; how a row is computed beside others is the same code as above.
// ./dev test runs one of each way to multiply (NVFP4, FP8, and FP8 blocks as bf16), --long all.
class GpuQuantised : public GpuFamilies {};
std::vector<GpuFamily> quantised() {
  std::vector<GpuFamily> out = {
      {"tiny-glm", 1, "nvfp4-modelopt"}, {"tiny-glm", 1, "fp8-rows"}, {"tiny-minimax", 1, "fp8-blocks"}};
  if (test::wants_all())
    out.insert(out.end(), {{"tiny-glm", 1, "nvfp4-compressed"},
                           {"tiny-glm", 1, "fp8-tensor"},
                           {"tiny-minimax", 1, "nvfp4-modelopt"},
                           {"tiny-deepseek", 1, "nvfp4-modelopt"},
                           {"tiny-deepseek", 1, "fp8-blocks"},
                           {"tiny-mistral", 1, "nvfp4-compressed"},
                           {"tiny-dense", 1, "nvfp4-awq"},
                           {"tiny-mistral", 1, "nvfp4-modelopt"},
                           {"tiny-mistral", 1, "fp8-blocks"},
                           {"tiny-mistral", 1, "fp8-static"},
                           {"tiny-glm", 1, "mxfp8-modelopt"},
                           {"tiny-glm", 1, "mxfp8-compressed"},
                           {"tiny-glm", 1, "mxfp4-modelopt"},
                           {"tiny-glm", 1, "mxfp4-compressed"}});
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, GpuQuantised, testing::ValuesIn(quantised()));

TEST_P(GpuQuantised, AreWithinTheirBoundsWholeAndOnTwoRanks) {
  const evaluate::ReferenceFile wanted = reference();
  const backend::Capacity capacity = evaluate::trace_capacity(wanted.prompts());
  expect_fine(*Simulated(plan::kSm120).prepare(model(), capacity, true), wanted);
  const auto all = std::make_shared<backend::SimRanks>(2, all_reduce::ExchangeOptions{.wait_seconds = 600});
  expect_fine(*backend::prepare_sim(model(), all, capacity), wanted);
}

}  // namespace
}  // namespace fourfold::model
