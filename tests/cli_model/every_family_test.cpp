// Commands that read the program, not the name: make-model, quantize, inspect, plan and doctor with a tiny
// model of every family.
#include <string>
#include <vector>

#include "checkpoint/write/model_shape.h"
#include "tests/cli_model/support.h"
#include "tests/support/long_test.h"

namespace fourfold::cli {
namespace {

// Of every family; "small" is of one that has smaller ones.
std::vector<std::string> tiny_names() {
  std::vector<std::string> names;
  for (const checkpoint::ModelShape& shape : checkpoint::tiny_shapes())
    if (shape.name != "small") names.emplace_back(shape.name);
  return names;
}

class EveryFamily : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome make(const std::string& name, const std::string& arguments) const {
    return shell("PROGRAM make-model " + at(name) + " " + arguments + " 2>&1");
  }

  checkpoint::TempFolder folder_;
};

// Of every family, and those with odd sizes in --long.
std::vector<std::string> some_names() {
  std::vector<std::string> names = tiny_names();
  if (!test::wants_all())
    std::erase_if(names, [](const std::string& name) { return name.ends_with("-odd"); });
  return names;
}

TEST_F(EveryFamily, IsMadeAndRuns) {
  for (const std::string& shape : some_names())
    for (const char* format_name :
         {"bf16", "modelopt", "modelopt-mixed", "compressed-tensors", "nvfp4", "mxfp4"}) {
      const std::string name = shape + "-" + format_name;
      const Outcome made = make(name, format("--shape {} --format {} --seed 3", shape, format_name));
      ASSERT_EQ(made.status, kFine) << made.out;
      EXPECT_TRUE(contains(made.out, "mean nothing")) << made.out;
      const Outcome answer =
          shell("PROGRAM run " + at(name) + " --ids 1,2,3 --max-tokens 4 --temperature 0 2>&1");
      EXPECT_EQ(answer.status, kFine) << name << ": " << answer.out;
    }
}

// Why a GPU of SM120 does not run a shape; empty where it does.
std::string refused_on_sm120(const std::string& shape) {
  if (shape == "tiny-qwen3-moe") return "the GPU backend has kernels for heads of 64, 128, 256";
  if (shape.starts_with("tiny-gpt-oss")) return "a bias on a matrix with FP4 activations";
  return "";
}

TEST_F(EveryFamily, IsInspectedPlannedAndDiagnosed) {
  for (const std::string& shape : tiny_names()) {
    SCOPED_TRACE(shape);
    ASSERT_EQ(make(shape, format("--shape {} --format nvfp4", shape)).status, kFine);
    const Outcome seen = shell("PROGRAM inspect " + at(shape) + " --no-measure 2>&1");
    EXPECT_EQ(seen.status, kFine) << seen.out;
    EXPECT_TRUE(contains(seen.out, "NVFP4")) << seen.out;
    const Outcome planned = shell("PROGRAM plan --model " + at(shape) + " --arch sm120 --memory-gb 24 2>&1");
    const std::string refusal = refused_on_sm120(shape);
    EXPECT_EQ(planned.status, refusal.empty() ? kFine : kFailed) << planned.out;
    EXPECT_TRUE(contains(planned.out, refusal.empty() ? "it fits" : refusal)) << planned.out;
    const Outcome told =
        shell("PROGRAM doctor --root " FOURFOLD_SOURCE_DIR "/tests/doctor/machines/rtx-5090 --model " +
              at(shape) + " 2>&1");
    EXPECT_EQ(told.status, kFine) << told.out;  // nothing is wrong with that machine
    EXPECT_TRUE(contains(told.out, format("model {}: ", shape))) << told.out;
  }
}

TEST_F(EveryFamily, IsQuantizedAndTheResultRuns) {
  for (const std::string& shape : some_names()) {
    ASSERT_EQ(make(shape, format("--shape {} --format bf16", shape)).status, kFine);
    for (const char* arguments : {"", "--dense fp8", "--dense nvfp4", "--format compressed-tensors",
                                  "--format compressed-tensors --dense fp8"}) {
      const std::string out = at("out");
      const Outcome done = shell("PROGRAM quantize " + at(shape) + " " + out + " " + arguments + " 2>&1");
      ASSERT_EQ(done.status, kFine) << shape << " " << arguments << ": " << done.out;
      const Outcome answer = shell("PROGRAM run " + out + " --ids 1,2,3 --max-tokens 4 2>&1");
      EXPECT_EQ(answer.status, kFine) << answer.out;
      EXPECT_TRUE(std::filesystem::exists(out + "/tokenizer.json"));
      std::filesystem::remove_all(out);
    }
  }
}

}  // namespace
}  // namespace fourfold::cli
