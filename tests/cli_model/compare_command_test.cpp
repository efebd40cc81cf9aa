// compare where a router was too close to call: it is named, in words and in JSON. And where FP4 activations
// are not for every matrix.
#include "tests/checkpoint/support.h"
#include "tests/cli_model/support.h"
#include "tests/model/quantised_models.h"

namespace fourfold::cli {
namespace {

// The simulated GPU takes another expert in the first layer of this model's position 41.
TEST(CompareCommand, NamesRoutersThatWereTooCloseToCall) {
  if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  const checkpoint::TempFolder folder;
  const std::string model = (folder.path() / "model").string();
  ASSERT_EQ(shell("PROGRAM make-model " + model + " --shape tiny-minimax --format bf16 --seed 1 2>&1").status,
            kFine);
  const std::string compare =
      "PROGRAM compare " + model +
      " " FOURFOLD_SOURCE_DIR
      "/tests/golden/families/tiny-minimax.safetensors --activations w4a16 --backend ";
  const Outcome result = shell(compare + "sim 2>&1");
  EXPECT_EQ(result.status, kFine) << result.out;
  EXPECT_TRUE(contains(result.out, "  p layers.0.mlp.router, position 41: too close to call: expert 4 is "))
      << result.out;
  EXPECT_TRUE(contains(result.out, "held against a reference that takes 6\n")) << result.out;
  const auto turned = [&](const std::string& backend) {
    return read_json(shell(compare + backend + " --json").out).at("runs").items.front().at("routers_turned");
  };
  const Json sim = turned("sim");
  ASSERT_EQ(sim.items.size(), 1u);
  const Json& choice = sim.items.front();
  EXPECT_EQ(choice.at("router").text, "layers.0.mlp.router");
  EXPECT_EQ(choice.at("position").number, 41);
  EXPECT_EQ(choice.at("leaves").text, "4");
  EXPECT_EQ(choice.at("comes").text, "6");
  EXPECT_LT(choice.at("margin").number, 4 * choice.at("moved").number);
  EXPECT_TRUE(turned("cpu").items.empty());
}

// NVFP4_AWQ: a down projection that took the factors of its inputs is not NVFP4 any more, and keeps its MLP
// from FP4 activations. "all" compares what runs, and does not end with what is refused by name.
TEST(CompareCommand, AllIsWhatRuns) {
  if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  const checkpoint::TempFolder folder;
  model::make_quantised(folder.path() / "model", {"tiny-dense", "nvfp4-awq"});
  const Outcome result =
      shell("PROGRAM compare " + (folder.path() / "model").string() + " " +
            model::family_reference("tiny-dense-nvfp4-awq").string() + " --backend sim 2>&1");
  EXPECT_EQ(result.status, kFine) << result.out;
  EXPECT_TRUE(
      contains(result.out, "8 matrices (the first: model.language_model.layers.0.linear_attn.out_proj"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "multiplied out and are no longer NVFP4")) << result.out;
  EXPECT_TRUE(contains(result.out, "activations w4a16;")) << result.out;
  EXPECT_TRUE(contains(result.out, "activations auto;")) << result.out;
}

}  // namespace
}  // namespace fourfold::cli
