// That such a model says what it should is shown where there are backends: tests/cli_model and tests/clients.
#include "checkpoint/write/scripted_model.h"

#include "checkpoint/bind.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

constexpr TokenIds kIds{5, 6};

ScriptedModel script_of(std::int64_t steps, std::int64_t phase = 1) {
  ScriptedModel script;
  script.vocab = 4096;
  script.positions = 65536;
  for (std::int64_t i = 0; i < steps; ++i) script.steps.push_back({{i, i + 1, i + 2, i + 3}, phase, i + 4});
  script.turns.push_back({{1, 2, 3, 5}, phase});
  return script;
}

std::filesystem::path make(const TempFolder& temp, const std::string& name, const ScriptedModel& script) {
  OutputFolder folder(temp.path() / name);
  write_scripted_model(folder, script, kIds);
  folder.publish();
  return temp.path() / name;
}

TEST(ScriptedModel, ItIsAnOrdinaryCheckpoint) {
  TempFolder temp;
  const auto folder = make(temp, "model", script_of(100));
  const Checkpoint checkpoint(folder);
  const ModelConfig config = read_model_config(folder);
  EXPECT_EQ(config.family->name, "Qwen3.5");
  EXPECT_EQ(config.position_limit, 65536);
  EXPECT_TRUE(config.unknown_fields.empty());
  const BoundModel model = bind_model(checkpoint, config);
  EXPECT_TRUE(model.skipped.empty());
  EXPECT_TRUE(model.weights.mtp.has_value());
  EXPECT_EQ(config.moe->shared_intermediate_size, 128);
  for_each_matrix(model.weights, [](const Matrix& matrix) { validate(load(matrix).matrix); });
}

TEST(ScriptedModel, TheSameScriptGivesTheSameBytes) {
  TempFolder temp;
  const auto bytes = [](const std::filesystem::path& folder) {
    return read_file(folder / "model.safetensors");
  };
  const std::string first = bytes(make(temp, "first", script_of(50)));
  EXPECT_TRUE(first == bytes(make(temp, "second", script_of(50))));
  EXPECT_FALSE(first == bytes(make(temp, "third", script_of(51))));
}

TEST(ScriptedModel, WhatHasNoRoomIsRefused) {
  TempFolder temp;
  const auto refusal = [&](const ScriptedModel& script) -> std::string {
    try {
      make(temp, "model", script);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_request);
      return error.what();
    }
    std::filesystem::remove_all(temp.path() / "model");
    return "taken";
  };
  EXPECT_EQ(refusal(script_of(620)), "taken");  // 624 tokens
  EXPECT_EQ(refusal(script_of(621)),
            "the script has 625 different tokens; a scripted model has room for 624");
  EXPECT_EQ(refusal(script_of(5, 32)), "taken");
  EXPECT_EQ(refusal(script_of(5, 33)), "the script has phase 33; a scripted model has room for 32");
}

}  // namespace
}  // namespace fourfold::checkpoint
