// `plan --model SHAPE --gpu NAME`: memory of one rank and the predicted step, against what was measured.
#include "cli/plan_model_command.h"

#include <limits>

#include "cli/run_command.h"
#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

using checkpoint::expect_error;

PlanModelOptions shape_on(const std::string& shape, const std::string& gpu, int ranks = 1) {
  PlanModelOptions options;
  options.model = shape;
  options.gpu = gpu;
  options.ranks = ranks;
  options.max_context = 4096;
  options.json = true;
  return options;
}

Json planned(const PlanModelOptions& options, int status = kFine) {
  Captured captured;
  EXPECT_EQ(run_plan_model(options, captured.console), status);
  return read_json(captured.out.str());
}

library::StepAnswer predict(const PlanModelOptions& options) {
  Captured captured;
  return predict_model_step(options, captured.console);
}

double sum(const Json& members) {
  double total = 0;
  for (const auto& [name, value] : members.members) total += value.number;
  return total;
}

double low(const Json& range) { return range.items.at(0).number; }

// What an H200 lost with SMs of 100 KB is within the range of cards that have such SMs, and no other's.
TEST(PlanModel, SmallSmsAreInTheRange) {
  for (const auto& [users, context, loss] :
       {std::tuple{1, 0, 0.05}, {64, 0, 0.07}, {64, 4096, 0.14}, {64, 32'768, 0.27}}) {
    PlanModelOptions options = shape_on("35b", "rtx-pro-6000");
    options.users = users;
    options.context = context;
    const library::Prediction step = predict(options).step;
    ASSERT_EQ(step.lines.size(), 2u) << users;
    EXPECT_EQ(step.lines[1].what, "SMs of one block");
    EXPECT_GT(step.apart, 0);
    EXPECT_LT(step.apart, step.kernels);
    const plan::Range plain = step.lines[0].us;
    EXPECT_EQ(step.step_us.low, plain.low) << "a card may lose nothing";
    EXPECT_LE(1 / step.step_us.high, (1 - loss) / plain.high) << users << " " << context;
    options.gpu = "h200";
    EXPECT_EQ(predict(options).step.lines.size(), 1u) << "measured as it is";
  }
}

TEST(PlanModel, TheLargestModelOnFourCards) {
  PlanModelOptions options = shape_on("397b", "rtx-pro-6000", 4);
  options.max_context = 262'144;
  const Json four = planned(options);
  EXPECT_TRUE(four.at("fits").truth);
  EXPECT_EQ(sum(four.at("bytes")), four.at("needed").number);
  EXPECT_EQ(sum(four.at("weights")), four.at("bytes").at("weights").number);
  // Two KV heads of 256 on four GPUs: one on each, so half of all pages; 15 layers and the MTP layer's.
  EXPECT_EQ(four.at("bytes").at("KV pages").number, 16.0 * 2 * 256 * 2 * 262'144);
  // 60 layers of 512 experts, three matrices of 4,096 x 1,024 in 4.5 bits: a quarter, and the scales.
  const double experts = 60.0 * 512 * 3 * 4096 * 1024 * 4.5 / 8 / 4;
  EXPECT_NEAR(four.at("weights").at("routed experts").number, experts, 1e-4 * experts);
  EXPECT_EQ(four.at("weights").at("embedding").number, 248'320.0 * 4096 * 2) << "whole on every GPU";
  EXPECT_EQ(four.at("step").at("sums").number, 120);

  // The comparison has both cuts; one user's step is shorter by column.
  const Json& line = four.at("step").at("experts").items.front();
  EXPECT_NEAR(low(line.at("tp_us")), low(four.at("step").at("us")), 1);
  EXPECT_GT(low(line.at("ep_us")), low(line.at("tp_us")));
  EXPECT_GT(line.at("ep_gb").number, line.at("tp_gb").number);
  std::vector<double> users;
  for (const Json& one : four.at("step").at("experts").items) users.push_back(one.at("users").number);
  EXPECT_EQ(users, (std::vector<double>{1, 2, 4, 8, 16, 32, 64}));
  // What the backend refuses is not planned.
  options.experts = "ep";
  expect_error(Code::unsupported_op, {"128 of 512 experts", "a part of each"}, [&] { planned(options); });
}

// The cards that people own for the other families (docs/models.md), with 64k tokens, which all of these
// models have.
TEST(PlanModel, FamiliesFitTheirCards) {
  struct Case {
    const char* shape;
    double memory_gb;
    int ranks;
    bool is_enough;
  };
  for (const auto& [shape, memory_gb, ranks, is_enough] :
       {Case{"gpt-oss-20b", 24, 1, true}, Case{"gpt-oss-120b", 96, 1, true},
        Case{"gpt-oss-120b", 48, 1, false}, Case{"gpt-oss-120b", 48, 2, true},
        Case{"gpt-oss-120b", 24, 4, true}, Case{"gpt-oss-120b", 16, 8, true},
        Case{"glm-4.5-air", 96, 1, true}, Case{"glm-4.7", 96, 4, true}, Case{"minimax-m2", 96, 2, true},
        Case{"deepseek-v3", 96, 8, true}, Case{"mistral-small-4", 96, 1, true}}) {
    SCOPED_TRACE(format("{} on {} cards of {} GB", shape, ranks, memory_gb));
    PlanModelOptions options = shape_on(shape, "", ranks);
    options.arch = "sm120";
    options.memory_gb = memory_gb;
    options.max_context = 65'536;
    const Json plan = planned(options, is_enough ? kFine : kMiss);
    EXPECT_EQ(plan.at("fits").truth, is_enough);
  }
}

TEST(PlanModel, MemoryIsANumberOfBytesThereCanBe) {
  for (const double gb : {1e300, std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    PlanModelOptions options = shape_on("35b", "");
    options.arch = "sm120";
    options.memory_gb = gb;
    expect_error(Code::invalid_request, {"--memory-gb", "at most 1,000,000"}, [&] { planned(options); });
  }
}

TEST(PlanModel, MachinesHaveAPriceForTheirSums) {
  PlanModelOptions options = shape_on("35b", "spark");
  options.nodes = 2;
  options.link = "10gbe";
  const Json two = planned(options).at("nodes");
  EXPECT_EQ(two.at("evidence").text, "computed, not measured");
  EXPECT_EQ(two.at("sums").number, 80);  // two of each of 40 layers
  EXPECT_EQ(two.at("sum_row_bytes").number, 4 * 2048);
  // A row of 8 KB there and back at 1.25 GB/s, and twice the latency, eighty times.
  const double wire_us = 2 * 4 * 2048 / 1250.0;
  EXPECT_NEAR(low(two.at("steps").items.at(0).at("sums_us")), 80 * (2 * low(two.at("latency_us")) + wire_us),
              1);
  EXPECT_GT(low(two.at("rank_alone_us")), 0);
  options.link = "cx7";
  const Json fast = planned(options).at("nodes");
  EXPECT_LT(low(fast.at("steps").items.at(3).at("together_us")),
            low(two.at("steps").items.at(3).at("together_us")));
  options.json = false;
  Captured page;
  run_plan_model(options, page.console);
  EXPECT_TRUE(contains(page.out.str(), "what 2 machines on ConnectX-7 at 200 Gbit/s say to each other"))
      << page.out.str();
  EXPECT_TRUE(contains(page.out.str(), "computed, not measured")) << page.out.str();
  Captured captured;
  options.link = "pcie5";
  expect_error(Code::invalid_request, {"--nodes with --link pcie5", "10gbe, 25gbe and cx7"},
               [&] { run_plan_model(options, captured.console); });
  options.link = "cx7";
  options.ranks = 4;
  expect_error(Code::invalid_request, {"--nodes 2 with --tp 4"},
               [&] { run_plan_model(options, captured.console); });
  options.nodes = 0;
  expect_error(Code::invalid_request, {"--link cx7", "no --nodes"},
               [&] { run_plan_model(options, captured.console); });
}

TEST(PlanModel, RefusesWithNumbers) {
  PlanModelOptions options = shape_on("35b", "rtx 5070 ti");  // 25 GB of weights
  options.json = false;
  Captured two;
  EXPECT_EQ(run_plan_model(options, two.console), kMiss);
  EXPECT_TRUE(contains(two.out.str(), "17.2 GB (16 GiB), 17.2 GB free, 16.3 GB may be used: it DOES NOT FIT"))
      << two.out.str();
  EXPECT_TRUE(contains(two.out.str(), "--max-context 0 with 1 sequence")) << two.out.str();
  options = shape_on("35b", "rtx-pro-6000", 3);
  Captured captured;
  expect_error(Code::unsupported_model, {"cut into 3 parts", "16 attention heads are not a multiple of 3"},
               [&] { run_plan_model(options, captured.console); });
  options.ranks = 1;
  options.users = 513;
  expect_error(Code::invalid_request, {"513 rows a step", "up to 512"},
               [&] { run_plan_model(options, captured.console); });
  options.users = 1;
  options.gpu = "rtx 4090";
  expect_error(Code::invalid_request, {"--gpu rtx 4090", "no kernels"},
               [&] { run_plan_model(options, captured.console); });
}

// Kernels are counted by launching a step that does nothing: as many as the backend says that it runs.
TEST(PlanModel, CountsTheKernelsThatRun) {
  RunOptions run;
  run.model = checkpoint::golden_model("bf16").string();
  run.ids = "5,17,99";
  run.generation.max_tokens = 5;
  run.generation.temperature = 0;
  run.generation.backend.backend = "sim";
  run.generation.backend.explain = true;
  Captured captured;
  EXPECT_EQ(run_run(run, captured.console), kFine);
  PlanModelOptions options;
  options.model = run.model;
  options.gpu = "rtx-pro-6000";
  const std::string counted = format(", tokens chosen: {} kernels", predict(options).step.kernels);
  const std::string said = captured.err.str();
  const std::size_t at = said.find("step of 1 generated row of 1 sequence");
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_TRUE(contains(said.substr(at, said.find('\n', at) - at), counted)) << said << counted;
}

// A checkpoint is cut as a shape is, in its own formats.
TEST(PlanModel, ChecksACheckpointsOwnSizes) {
  PlanModelOptions options;
  options.model = checkpoint::golden_model("bf16").string();
  options.gpu = "rtx-5090";
  options.json = true;
  const Json whole = planned(options);
  options.dense = "nvfp4";
  EXPECT_LT(planned(options).at("step").at("bytes").number, whole.at("step").at("bytes").number);
  options.ranks = 2;
  EXPECT_LT(planned(options).at("weights").at("attention").number,
            whole.at("weights").at("attention").number);
}

}  // namespace
}  // namespace fourfold::cli
