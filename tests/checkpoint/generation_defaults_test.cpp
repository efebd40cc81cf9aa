#include "checkpoint/hf_config.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

TEST(GenerationDefaults, ReadsIdsAsNumberOrList) {
  const GenerationDefaults golden = *read_generation_defaults(golden_folder() / "bf16");
  EXPECT_EQ(golden.stop_ids, std::vector<std::int64_t>{319});
  EXPECT_EQ(golden.temperature, 0.6);
  EXPECT_EQ(golden.top_k, 20);
  EXPECT_EQ(golden.top_p, 0.95);
  const auto single = parse_generation_defaults(R"({"eos_token_id": 5})", "generation_config.json");
  EXPECT_EQ(single.stop_ids, std::vector<std::int64_t>{5});
  EXPECT_FALSE(single.temperature);
  TempFolder folder;
  EXPECT_FALSE(read_generation_defaults(folder.path()));
  expect_error(Code::bad_checkpoint, {"temperature = -1", "eos_token_id"}, [] {
    parse_generation_defaults(R"({"eos_token_id": [1, "x"], "temperature": -1})", "generation_config.json");
  });
}

TEST(GenerationDefaults, RangesAreThoseOfRequestsAndAreSaid) {
  const auto edge = parse_generation_defaults(
      R"({"temperature": 0, "top_p": 0, "min_p": 0, "repetition_penalty": 0.01})", "generation_config.json");
  EXPECT_EQ(edge.temperature, 0);
  EXPECT_EQ(edge.repetition_penalty, 0.01);
  expect_error(Code::bad_checkpoint, {"temperature = -1 (at least 0, at most 100)"},
               [] { parse_generation_defaults(R"({"temperature": -1})", "generation_config.json"); });
  expect_error(Code::bad_checkpoint, {"repetition_penalty = 1e-308 (at least 0.01, at most 100)"}, [] {
    parse_generation_defaults(R"({"repetition_penalty": 1e-308})", "generation_config.json");
  });
}

}  // namespace
}  // namespace fourfold::checkpoint
