// `fourfold bench model` on shapes small enough for a test: the numbers mean nothing, the page must.
#include "cli/bench_model_command.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "tests/cli/support.h"

namespace fourfold::cli {
namespace {

// Without the model floor the command only says so.
bool is_built() {
  Captured captured;
  BenchModelOptions options;
  options.backend = "none";
  try {
    run_bench_model(options, captured.console);
  } catch (const Error& error) {
    return error.code() != Code::unsupported_model;
  }
  return true;
}

BenchModelOptions tiny() {
  BenchModelOptions options;
  options.shape = "tiny";
  options.prompt = 8;
  options.tokens = 2;
  options.threads = 2;
  return options;
}

TEST(BenchModel, SaysWhatIsMeasuredAndWhatIsExtrapolated) {
  if (!is_built()) GTEST_SKIP() << "built without the model floor";
  for (const char* dense : {"nvfp4", "fp8", "bf16"}) {
    Captured captured;
    BenchModelOptions options = tiny();
    options.dense = dense;
    options.layers = 2;
    EXPECT_EQ(run_bench_model(options, captured.console), kFine);
    const std::string page = captured.out.str();
    for (const char* part : {"2 of 4 layers", "extrapolated to 4", "prefill", "decode", "% of the ceiling"})
      EXPECT_NE(page.find(part), std::string::npos) << part << " is not in:\n" << page;
    EXPECT_NE(page.find(std::string("dense ") + dense), std::string::npos) << page;
  }
}

// As they are released: gpt-oss's experts in MXFP4, others in NVFP4.
TEST(BenchModel, NamesTheFormatOfTheExperts) {
  if (!is_built()) GTEST_SKIP() << "built without the model floor";
  for (const auto& [shape, format] : {std::pair("tiny-gpt-oss", "mxfp4"), {"tiny-glm", "nvfp4"}}) {
    Captured captured;
    BenchModelOptions options = tiny();
    options.shape = shape;  // one has fewer layers than are timed of others
    EXPECT_EQ(run_bench_model(options, captured.console), kFine);
    EXPECT_NE(captured.out.str().find(std::string("experts ") + format + ", dense"), std::string::npos)
        << captured.out.str();
  }
}

// The tiny model has 4,096 positions; what a prompt costs does not depend on it.
TEST(BenchModel, TimesPromptsBeyondTheModelsLimit) {
  if (!is_built()) GTEST_SKIP() << "built without the model floor";
  Captured captured;
  BenchModelOptions options = tiny();
  options.prompt = 4'100, options.tokens = 1;
  EXPECT_EQ(run_bench_model(options, captured.console), kFine);
  EXPECT_NE(captured.out.str().find("4100 tokens, no head"), std::string::npos) << captured.out.str();
}

TEST(BenchModel, RefusesWhatItCannotRun) {
  if (!is_built()) GTEST_SKIP() << "built without the model floor";
  const auto expect_refused = [](BenchModelOptions options, const std::string& part) {
    Captured captured;
    try {
      run_bench_model(options, captured.console);
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  BenchModelOptions options = tiny();
  options.backend = "tpu", expect_refused(options, "--backend is 'tpu'");
  options.backend = "cuda", expect_refused(options, "--threads is for --backend cpu");
  options.threads = 0, options.users = "0", expect_refused(options, "--users: '0'");
  options.users = "1", options.contexts = "2k,x", expect_refused(options, "'x'");
  options.contexts = "0", options.ways = "sums_norm,x",
  expect_refused(options, "'x' is no way through a step");
  options = tiny(), options.users = "8", expect_refused(options, "--users is for --backend cuda");
  options = tiny(), options.mtp = "0..5", expect_refused(options, "--mtp is for --backend cuda");
  options = tiny(), options.csv = "x.csv", expect_refused(options, "--csv is for --backend cuda");
  options = tiny(), options.ways = "none", expect_refused(options, "--ways is for --backend cuda");
  options = tiny(), options.layers = 5, expect_refused(options, "--layers is 5");
  options = tiny(), options.prompt = 0, expect_refused(options, "--prompt is 0");
  options = tiny(), options.dense = "int3", expect_refused(options, "--dense is 'int3'");
  options = tiny(), options.activations = "w1a1", expect_refused(options, "--activations is 'w1a1'");
  options = tiny(), options.shape = "huge", expect_refused(options, "huge");
}

}  // namespace
}  // namespace fourfold::cli
