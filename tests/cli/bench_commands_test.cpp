#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/bench_moe_command.h"
#include "cli/bench_pack_command.h"
#include "kernels/gpu/gpu.h"
#include "tests/cli/support.h"

namespace fourfold::cli {
namespace {

template <class Options, class Run>
std::string error_of(const Options& options, Run run) {
  Captured captured;
  try {
    run(options, captured.console);
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(BenchMoe, WithoutAGpuSaysSo) {
  if (kernels::why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU here";
  EXPECT_NE(error_of(BenchMoeOptions{}, run_bench_moe).find("no GPU can be used"), std::string::npos);
}

TEST(BenchMoe, BadInputIsRefusedBeforeAnyGpu) {
  const auto expect = [](std::string BenchMoeOptions::*member, const char* value, const char* says) {
    BenchMoeOptions options;
    options.*member = value;
    const std::string error = error_of(options, run_bench_moe);
    EXPECT_NE(error.find(says), std::string::npos) << value << ": " << error;
  };
  expect(&BenchMoeOptions::shape, "100,64,8,2", "multiples of 64");
  expect(&BenchMoeOptions::shape, "64,64,2,4", "top-k 4 exceeds the 2 experts");
  expect(&BenchMoeOptions::tokens, "0", "zero tokens");
  expect(&BenchMoeOptions::tokens, "many", "not a token count");
  expect(&BenchMoeOptions::tokens, "99999999", "split the batch");
  expect(&BenchMoeOptions::routing, "round", "uniform, zipf, same, all");
  expect(&BenchMoeOptions::format, "fp8", "nvfp4, mxfp4");
  expect(&BenchMoeOptions::activations, "w8a8", "w4a16, w4a4");
}

TEST(BenchPack, TheHostPartNeedsNoGpu) {
  for (const char* format : {"nvfp4", "mxfp4"}) {
    BenchPackOptions options;
    options.shape = "512,128,8,2";
    options.experts = 2;
    options.format = format;
    options.rounds = 1;
    Captured captured;
    EXPECT_EQ(run_bench_pack(options, captured.console), kFine);
    EXPECT_NE(captured.out.str().find("GB/s read and written"), std::string::npos);
  }
}

TEST(BenchPack, BadInputIsRefused) {
  BenchPackOptions options;
  options.experts = 0;
  EXPECT_NE(error_of(options, run_bench_pack).find("--experts is 0"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::cli
