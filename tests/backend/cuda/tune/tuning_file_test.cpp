// Tuning files: what is written is read back; what is not understood whole is refused.
#include "backend/cuda/tune/tuning_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::backend::cuda {
namespace {

TuningFile sample(const kernels::Machine& machine) {
  TuningFile file{machine.description(), machine.sm_count(), "CUDA 13.0", "abc", "2026-11-15", {}};
  file.tuning.add({"matrix",
                   "448x1024 bf16 norm",
                   2,
                   8,
                   {"dense_few 32x8x512 norm bf16 w4", {}, 3},
                   10.5,
                   {"dense_few 16x8x512 norm bf16 w8", {}, 0},
                   11.25});
  file.tuning.add({"experts",
                   "2048,512,256,8 nvfp4",
                   1,
                   1,
                   {"moe_few_gate_up 32x4x512 w4a16-mma nvfp4", "moe_few_down 32x4x512 w4a16-mma nvfp4", 0},
                   1,
                   {"moe_stream 32x8x512 w4a16-mma nvfp4", {}, 0},
                   2});
  return file;
}

class TuningFileTest : public testing::Test {
 protected:
  // The sample with one part replaced.
  std::string with(const std::string& part, const std::string& other) const {
    std::string text = to_json(sample(*machine_));
    const std::size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part << " is not in " << text;
    return text.replace(at, part.size(), other);
  }
  std::string refusal(const std::string& text) const {
    try {
      require_for(parse_tuning(text, "t.json"), *machine_, "t.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_);
};

TEST_F(TuningFileTest, ReadsWhatItWrites) {
  const TuningFile before = sample(*machine_);
  const TuningFile file = parse_tuning(to_json(before), "t.json");
  EXPECT_TRUE(is_for(file, *machine_));
  EXPECT_EQ(file.driver, "CUDA 13.0");
  EXPECT_EQ(file.commit, "abc");
  EXPECT_EQ(file.date, "2026-11-15");
  ASSERT_EQ(file.tuning.choices().size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const TunedChoice &read = file.tuning.choices()[i], &written = before.tuning.choices()[i];
    EXPECT_EQ(read.op, written.op);
    EXPECT_EQ(read.shape, written.shape);
    EXPECT_EQ(read.tokens_from, written.tokens_from);
    EXPECT_EQ(read.tokens_to, written.tokens_to);
    EXPECT_EQ(read.form, written.form);
    EXPECT_EQ(read.default_form, written.default_form);
    EXPECT_EQ(read.microseconds, written.microseconds);
    EXPECT_EQ(read.default_microseconds, written.default_microseconds);
  }
  EXPECT_EQ(refusal(to_json(before)), "nothing was refused");
  EXPECT_EQ(to_json(file), to_json(before));
}

TEST_F(TuningFileTest, RefusesWhatItDoesNotKnow) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "t.json"},
      {"[]", "is not a JSON object"},
      {with("\"fourfold_tuning\": 1", "\"fourfold_tuning\": 2"), "reads version 1"},
      {with("\"chip\": \"simulator, sm120\"", "\"chip\": \"NVIDIA H200, sm90\""), "measured on NVIDIA H200"},
      {with("\"sm_count\": 3", "\"sm_count\": 4"), "with 4 SMs; this is simulator, sm120 with 3"},
      {with("\"driver\"", "\"drover\""), "drover"},
      {with("\"row\": \"dense_few 32x8x512 norm bf16 w4\"", "\"row\": \"dense_none\""),
       "no row 'dense_none'"},
      {with("\"second_row\": \"moe_few_down 32x4x512 w4a16-mma nvfp4\"", "\"second_row\": \"moe_none\""),
       "no row 'moe_none'"},
      {with("\"tokens_from\": 2", "\"tokens_from\": 9"), "tokens_to is 8, below"},
      {with("\"tokens_from\": 2", "\"tokens_from\": 0"), "tokens_from"},
      {with("\"blocks\": 3", "\"blocks\": \"3\""), "blocks"},
      {with("\"us\": 10.5", "\"us\": -1"), "us"},
      {with("\"op\": \"matrix\",", ""), "op is missing"},
      {with("\"choices\"", "\"choice\""), "choices"},
  };
  for (const auto& [text, part] : cases) {
    const std::string why = refusal(text);
    EXPECT_NE(why.find(part), std::string::npos) << part << " is not in: " << why;
    EXPECT_NE(why.find("t.json"), std::string::npos) << why;
  }
}

TEST(Tuning, TheLastChoiceThatCoversTheTokensCounts) {
  Tuning tuning;
  const auto add = [&](const char* row, int from, int to) {
    tuning.add({"matrix", "a", from, to, {row, {}, 0}, 0, {}, 0});
  };
  EXPECT_EQ(tuning.find("matrix", "a", 1), nullptr);
  add("program", 1, 64);
  add("user", 2, 8);
  EXPECT_EQ(tuning.find("matrix", "a", 1)->form.row, "program");
  EXPECT_EQ(tuning.find("matrix", "a", 2)->form.row, "user");
  EXPECT_EQ(tuning.find("matrix", "a", 8)->form.row, "user");
  EXPECT_EQ(tuning.find("matrix", "a", 9)->form.row, "program");
  EXPECT_EQ(tuning.find("matrix", "a", 65), nullptr);
  EXPECT_EQ(tuning.find("matrix", "b", 2), nullptr);
  EXPECT_EQ(tuning.find("experts", "a", 2), nullptr);
}

}  // namespace
}  // namespace fourfold::backend::cuda
