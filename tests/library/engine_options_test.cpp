// What `fourfold serve` can do with a model, asked through the C functions alone: ranks, the format of keys
// and values, packed copies, tuning, drafts. Each test fails where the option is ignored.
#include <fourfold/fourfold.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/talking_model.h"

namespace fourfold::library {
namespace {

std::int32_t add(void* user, const char* text, std::size_t count) {
  static_cast<std::string*>(user)->append(text, count).append("\n");
  return 0;
}

// The small model on the simulated GPU; a token takes a moment there.
fourfold_model_options on_simulator(std::string& said) {
  fourfold_model_options options = FOURFOLD_INIT(fourfold_model_options);
  options.backend = "sim";
  options.max_context = 64;
  options.max_sequences = 1;
  options.step_rows = 64;
  options.on_text = add;
  options.user = &said;
  return options;
}

class EngineOptions : public testing::Test {
 protected:
  fourfold_model* open(const fourfold_model_options& options) {
    fourfold_model* model = nullptr;
    EXPECT_EQ(fourfold_model_open(folder_.path().c_str(), &options, &model), FOURFOLD_OK)
        << fourfold_last_error();
    return model;
  }
  // The most probable tokens behind a short prompt, one of them from a decoding step.
  std::string answer(const fourfold_model_options& options) {
    fourfold_model* model = open(options);
    if (model == nullptr) return "";
    fourfold_generate_options generate = FOURFOLD_INIT(fourfold_generate_options);
    generate.max_tokens = 2;
    generate.has_temperature = 1;
    std::string text;
    EXPECT_EQ(fourfold_generate(model, "ab", &generate, add, &text, nullptr), FOURFOLD_OK)
        << fourfold_last_error();
    fourfold_model_close(model);
    return text;
  }
  void expect_refused(const fourfold_model_options& options, const char* part) {
    fourfold_model* model = nullptr;
    EXPECT_NE(fourfold_model_open(folder_.path().c_str(), &options, &model), FOURFOLD_OK);
    EXPECT_EQ(model, nullptr);
    EXPECT_NE(std::strstr(fourfold_last_error(), part), nullptr) << fourfold_last_error();
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  cli::TalkingModel folder_;
};

TEST_F(EngineOptions, RanksShareTheModel) {
  std::string alone, together;
  const std::string wanted = answer(on_simulator(alone));
  fourfold_model_options options = on_simulator(together);
  options.tp = 2;
  options.experts = "tp";
  EXPECT_EQ(answer(options), wanted);
  EXPECT_FALSE(contains(alone, "rank 1")) << alone;
  EXPECT_TRUE(contains(together, "memory: rank 0 ")) << together;
  EXPECT_TRUE(contains(together, "memory: rank 1 ")) << together;
  options.tp = 17;
  expect_refused(options, "--tp 17: 1 to 16 ranks");
  options.tp = -1;
  expect_refused(options, "--tp -1");
  options.tp = 2;
  options.experts = "some";
  expect_refused(options, "unknown --experts 'some'");
}

// Megabytes of keys and values, as opening says them.
long kv_megabytes(const std::string& said) {
  const std::string name = "KV pages ";
  const std::size_t at = said.find(name);
  return at == std::string::npos ? -1 : std::strtol(said.c_str() + at + name.size(), nullptr, 10);
}

TEST_F(EngineOptions, KeysAndValuesTakeHalfTheRoomInFp8) {
  std::string wide, narrow;
  fourfold_model_options options = on_simulator(wide);
  options.kv_tokens = 65536;
  options.kv = "bf16";
  fourfold_model_close(open(options));
  options.user = &narrow;
  options.kv = "fp8";
  fourfold_model_close(open(options));
  EXPECT_GT(kv_megabytes(wide), 10) << wide;
  EXPECT_NEAR(static_cast<double>(kv_megabytes(narrow)), static_cast<double>(kv_megabytes(wide)) / 2, 1.0)
      << narrow;
  options.kv = "int4";
  expect_refused(options, "unknown --kv 'int4'");
}

TEST_F(EngineOptions, PackedCopiesAreWrittenOnceAndRead) {
  const checkpoint::TempFolder cache;
  const std::string path = cache.path().string();
  std::string first, second, third;
  fourfold_model_options options = on_simulator(first);
  options.cache = path.c_str();
  const std::string wanted = answer(options);
  EXPECT_TRUE(contains(first, "packed copy written: " + path)) << first;
  EXPECT_FALSE(std::filesystem::is_empty(path));
  options.user = &second;
  EXPECT_EQ(answer(options), wanted);
  EXPECT_TRUE(contains(second, "packed copy read: " + path)) << second;
  options.user = &third;
  options.rebuild_cache = 1;
  EXPECT_EQ(answer(options), wanted);
  EXPECT_TRUE(contains(third, "packed copy written: " + path)) << third;
}

TEST_F(EngineOptions, ATuningFileIsUsedOrRefused) {
  const checkpoint::TempFolder folder;
  const auto write = [&](const char* name, const std::string& chip, const std::string& row) {
    folder.write(name,
                 "{\"fourfold_tuning\": 1, \"chip\": \"" + chip +
                     "\", \"sm_count\": 3, \"driver\": \"none\", \"commit\": \"c\", \"date\": \"d\", "
                     "\"choices\": [{\"op\": \"attend\", \"shape\": \"4/2 heads of 64 bf16, 1 a sequence\", "
                     "\"tokens_from\": 1, \"tokens_to\": 8, \"row\": \"" +
                     row + "\", \"us\": 1, \"default\": {\"row\": \"x\"}, \"default_us\": 2}]}");
    return (folder.path() / name).string();
  };
  std::string plain, tuned;
  const std::string wanted = answer(on_simulator(plain));
  EXPECT_FALSE(contains(plain, "tuned by")) << plain;
  fourfold_model_options options = on_simulator(tuned);
  const std::string good = write("good.json", "simulator, sm120", "attend 64 bf16 x64");
  options.tuned = good.c_str();
  EXPECT_EQ(answer(options), wanted);
  EXPECT_TRUE(contains(tuned, "tuned by " + good + ": 1 choices")) << tuned;
  const std::string other = write("other.json", "NVIDIA H200, sm90", "attend 64 bf16 x64");
  options.tuned = other.c_str();
  expect_refused(options, "measured on NVIDIA H200, sm90");
  // That the choice is what runs: one that cannot run is noticed where it would be launched.
  const std::string unfit = write("unfit.json", "simulator, sm120", "attend 256 bf16 x16");
  options.tuned = unfit.c_str();
  fourfold_model* model = open(options);
  ASSERT_NE(model, nullptr);
  fourfold_generate_options generate = FOURFOLD_INIT(fourfold_generate_options);
  generate.max_tokens = 2;
  EXPECT_NE(fourfold_generate(model, "ab", &generate, nullptr, nullptr, nullptr), FOURFOLD_OK);
  EXPECT_NE(std::strstr(fourfold_last_error(), "cannot run as attend 256 bf16 x16"), nullptr)
      << fourfold_last_error();
  fourfold_model_close(model);
}

TEST_F(EngineOptions, WhatTheModelOrTheBackendLacksIsRefused) {
  fourfold_model_options options = FOURFOLD_INIT(fourfold_model_options);
  options.threads = 1;
  options.cache = "/tmp";
  expect_refused(options, "--cache");
  options.cache = nullptr;
  options.memory_fraction = 0.5;
  expect_refused(options, "--memory-fraction");
  options.memory_fraction = 0;
  options.activations = "w2a2";
  expect_refused(options, "unknown activations 'w2a2'");
  options.activations = nullptr;
  options.step_rows = 1;
  expect_refused(options, "--step-rows 1");
  options.step_rows = 0;
  options.kv_tokens = 3;
  expect_refused(options, "--kv-tokens 3");
  options.kv_tokens = 0;
  options.max_queue = -1;
  expect_refused(options, "--max-queue -1");
}

TEST_F(EngineOptions, NoticesAreHeardAndErrorsWhereStrict) {
  const std::filesystem::path config = std::filesystem::path(folder_.path()) / "config.json";
  std::ostringstream text;
  text << std::ifstream(config).rdbuf();
  std::string json = text.str();
  json.insert(json.find('{') + 1, "\"flux_capacitor\": 3,");
  std::filesystem::remove(config);  // a link
  std::ofstream(config) << json;
  std::string said;
  fourfold_model_options options = FOURFOLD_INIT(fourfold_model_options);
  options.threads = 1;
  options.max_context = 64;
  options.on_text = add;
  options.user = &said;
  fourfold_model_close(open(options));
  EXPECT_TRUE(contains(said, "the field 'flux_capacitor' is not known")) << said;
  options.strict = 1;
  expect_refused(options, "flux_capacitor");
}

TEST_F(EngineOptions, ProgressIsToldAndMayEndTheLoad) {
  struct Seen {
    std::uint64_t done = 0, total = 0;
    bool stop = false;
  } seen;
  fourfold_model_options options = FOURFOLD_INIT(fourfold_model_options);
  options.threads = 1;
  options.max_context = 64;
  options.user = &seen;
  options.on_progress = [](void* user, std::uint64_t done, std::uint64_t total) -> std::int32_t {
    auto& mine = *static_cast<Seen*>(user);
    mine.done = done, mine.total = total;
    return mine.stop ? 1 : 0;
  };
  answer(options);
  EXPECT_GT(seen.total, 0u);
  EXPECT_EQ(seen.done, seen.total);
  seen.stop = true;
  expect_refused(options, "on_progress gave the load up");
}

}  // namespace
}  // namespace fourfold::library
