// What steers the GPU backend from the command line: --kv, --memory-fraction, --max-context, --explain; and
// `plan --model`.
#include "cli/plan_model_command.h"
#include "cli/run_command.h"
#include "library/rank_machines.h"
#include "tests/cli_model/support.h"
#include "tests/model/made_models.h"

namespace fourfold::cli {
namespace {

using checkpoint::expect_error;

RunOptions run_ids(const std::string& backend) {
  RunOptions options;
  options.model = checkpoint::golden_model("bf16").string();
  options.ids = "5,17,99";
  options.generation.max_tokens = 3;
  options.generation.temperature = 0;
  options.generation.backend.backend = backend;
  return options;
}

std::string hint_of(Code code, const std::vector<std::string>& parts, const RunOptions& options) {
  Captured captured;
  return expect_error(code, parts, [&] { run_run(options, captured.console); });
}

TEST(GpuOptions, KvIsFp8WhereItIsKnown) {
  RunOptions options = run_ids("sim");
  options.generation.backend.kv = "fp8";
  options.generation.backend.explain = true;
  options.generation.max_tokens = 5;  // a step is recorded when its shape comes again
  Captured captured;
  EXPECT_EQ(run_run(options, captured.console), kFine);
  const std::string said = captured.err.str();
  EXPECT_TRUE(contains(said, "prepare 64 fp8 from f32; attend 64 fp8 x16")) << said;
  EXPECT_TRUE(contains(said, "attend_prompt 64 fp8 mma")) << said;
  EXPECT_TRUE(contains(said, "fourfold: step of 1 generated row of 1 sequence")) << said;
  EXPECT_TRUE(contains(said, "recorded as a graph")) << said;
  options.generation.backend.kv = "int4";
  hint_of(Code::invalid_request, {"unknown --kv 'int4'"}, options);

  options = run_ids("cpu");
  options.generation.backend.kv = "fp8";
  const std::string hint =
      hint_of(Code::unsupported_op, {"the CPU backend keeps them in bf16 or f32"}, options);
  EXPECT_TRUE(contains(hint, "--kv fp8")) << hint;
  options = run_ids("cpu");
  options.generation.backend.explain = true;
  hint_of(Code::invalid_request, {"--explain", "not the cpu backend"}, options);
  options.generation.backend = {.memory_fraction = 0.5};
  hint_of(Code::invalid_request, {"--memory-fraction", "not the cpu backend"}, options);
  options = run_ids("sim");
  options.generation.backend.memory_fraction = 1.5;
  hint_of(Code::invalid_request, {"--memory-fraction 1.5"}, options);
}

// Three records of 64 columns on two ranks: each has kernels of its own width, and says which. Ranks with the
// same widths say it once.
TEST(GpuOptions, RanksOfOtherWidthsTellTheirKernels) {
  checkpoint::TempFolder temp;
  const auto said_of = [&](std::int64_t width) {
    checkpoint::ModelShape shape = checkpoint::find_shape("tiny-gpt-oss-odd");
    shape.intermediate = width;
    const auto folder = temp.path() / format("{}", width);
    model::make_model(folder, shape, "bf16");
    RunOptions options = run_ids("sim");
    options.model = folder.string();
    options.generation.max_tokens = 1;
    options.generation.backend.tp = 2;
    options.generation.backend.explain = true;
    Captured captured;
    EXPECT_EQ(run_run(options, captured.console), kFine);
    return captured.err.str();
  };
  const std::string uneven = said_of(192);
  for (const char* line :
       {"fourfold: rank 0: step of 3 prompt rows", "fourfold: rank 1: step of 3 prompt rows"})
    EXPECT_TRUE(contains(uneven, line)) << uneven;
  EXPECT_TRUE(contains(uneven, "the busiest of 2 ranks")) << uneven;
  const std::string even = said_of(128);
  EXPECT_TRUE(contains(even, "fourfold: step of 3 prompt rows")) << even;
  EXPECT_FALSE(contains(even, "rank 1: step of")) << even;
}

// Each GPU is asked for its own memory; ranks that share one have a share of it.
TEST(GpuOptions, RanksPlanForTheirOwnGpu) {
  std::vector<int> asked;
  const auto memory = [&](int device) {
    asked.push_back(device);
    return kernels::GpuMemory{.free = device == 1 ? 50 : 90, .total = 100};
  };
  const auto each = library::rank_rooms({0, 1, 2}, 0.8, memory);
  EXPECT_EQ(asked, (std::vector<int>{0, 1, 2}));
  ASSERT_EQ(each.size(), 3u);
  EXPECT_EQ(each[0].usable, 80);
  EXPECT_EQ(each[1].usable, 50) << "something else is on it";
  EXPECT_EQ(each[2].usable, 80);
  for (const backend::MemoryRoom& room : library::rank_rooms({0, 0, 0, 0}, 0.8, memory)) {
    EXPECT_EQ(room.usable, 20);
    EXPECT_EQ(room.sharers, 4);
    EXPECT_EQ(room.free, 90);
  }
  EXPECT_EQ(library::devices_of_ranks("sim", 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(library::spread_ranks(4, 8), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(library::spread_ranks(4, 2), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(library::spread_ranks(4, 1), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(library::spread_ranks(4, 3), (std::vector<int>{0, 0, 1, 2}));
}

TEST(GpuOptions, MaxContextIsRoomForPromptAndAnswer) {
  RunOptions options = run_ids("cpu");
  options.max_context = 5;
  hint_of(Code::invalid_request, {"3 tokens of prompt and 3 of answer; --max-context makes room for 5"},
          options);
  options.generation.max_tokens.reset();
  Captured captured;
  EXPECT_EQ(run_run(options, captured.console), kFine);
  const std::string ids = captured.out.str();
  EXPECT_LE(std::count(ids.begin(), ids.end(), ','), 1) << ids;
  options.max_context = 1 << 30;
  hint_of(Code::invalid_request, {"--max-context", "at most the model's"}, options);
}

Json planned(const PlanModelOptions& options, int status) {
  Captured captured;
  EXPECT_EQ(run_plan_model(options, captured.console), status);
  return read_json(captured.out.str());
}

TEST(PlanModel, SaysWhatFits) {
  PlanModelOptions options;
  options.model = checkpoint::golden_model("bf16").string();
  options.arch = "sm90";
  options.memory_gb = 0.02;
  options.max_sequences = 3;
  options.max_context = 64;
  options.json = true;
  const Json small = planned(options, kFine);
  const Json& bytes = small.at("bytes");
  double sum = 0;
  for (const auto& [what, value] : bytes.members) sum += value.number;
  EXPECT_EQ(sum, small.at("needed").number);
  EXPECT_LE(small.at("needed").number, 0.95 * 0.02e9);

  const auto context = static_cast<std::int64_t>(small.at("largest_context").number);
  ASSERT_GT(context, 64);
  options.max_context = context;
  EXPECT_TRUE(planned(options, kFine).at("fits").truth);
  options.max_context = context + 1;
  const Json beyond = planned(options, kMiss);
  EXPECT_FALSE(beyond.at("fits").truth);
  EXPECT_EQ(beyond.at("largest_context").number, small.at("largest_context").number);
  EXPECT_LT(beyond.at("most_sequences").number, 3);
  options.kv = "fp8";
  EXPECT_TRUE(planned(options, kFine).at("fits").truth) << "half the pages";

  options.json = false;
  options.kv = "bf16";
  Captured captured;
  EXPECT_EQ(run_plan_model(options, captured.console), kMiss);
  EXPECT_TRUE(contains(captured.out.str(), "DOES NOT FIT")) << captured.out.str();
  EXPECT_TRUE(contains(captured.out.str(), format("--max-context {} with 3 sequences", context)))
      << captured.out.str();
  options.arch = "sm80";
  expect_error(Code::invalid_request, {"--arch sm80"}, [&] { run_plan_model(options, captured.console); });
}

}  // namespace
}  // namespace fourfold::cli
