// libfourfold_engine from outside: the C++ class and the C functions on the model that comes with the
// program.
#if defined(FOURFOLD_HAS_ENGINE)
#include <fourfold/engine.h>
#include <fourfold/fourfold.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace fourfold::library {
namespace {

const std::string kFolder = std::string(FOURFOLD_SOURCE_DIR) + "/models/storyteller";

GenerateOptions greedy(std::int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.temperature = 0;
  return options;
}

const Model& storyteller() {
  static const Model model(kFolder, {.threads = 1, .max_context = 512, .max_sequences = 2});
  return model;
}

TEST(EngineLibrary, ThreadsShareAModelAndGetTheSameAnswer) {
  const Result wanted = storyteller().generate("Once upon a time", greedy(12));
  EXPECT_FALSE(wanted.text.empty());
  EXPECT_EQ(wanted.end, End::max_tokens);
  EXPECT_EQ(wanted.answer_tokens, 12);
  EXPECT_EQ(wanted.prompt_tokens, static_cast<std::int64_t>(storyteller().encode("Once upon a time").size()));
  std::vector<std::thread> threads;
  std::vector<std::string> pieces(4);
  for (std::string& text : pieces)
    threads.emplace_back([&text] {
      storyteller().generate("Once upon a time", greedy(12), [&text](std::string_view piece) {
        text += piece;
        return true;
      });
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : pieces) EXPECT_EQ(text, wanted.text);
}

TEST(EngineLibrary, TheCallbackAndStopStringsEndAnAnswer) {
  const Result whole = storyteller().generate("Once upon a time", greedy(12));
  const Result cut =
      storyteller().generate("Once upon a time", greedy(12), [](std::string_view) { return false; });
  EXPECT_EQ(cut.end, End::cancelled);
  EXPECT_LT(cut.text.size(), whole.text.size());
  GenerateOptions options = greedy(12);
  options.stops = {whole.text.substr(whole.text.size() / 2, 3)};
  const Result stopped = storyteller().generate("Once upon a time", options);
  EXPECT_EQ(stopped.end, End::stop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(options.stops[0])));
}

TEST(EngineLibrary, ACallbackThatThrowsLeavesNothingRunning) {
  EXPECT_THROW(storyteller().generate("Once upon a time", greedy(200),
                                      [](std::string_view) -> bool { throw std::runtime_error("mine"); }),
               std::runtime_error);
  const Result after = storyteller().generate("Once upon a time", greedy(12));
  EXPECT_EQ(after.answer_tokens, 12);
}

TEST(EngineLibrary, TheContextIsThatOfTheOptions) {
  try {
    storyteller().generate("Once upon a time", greedy(511));
    FAIL() << "more than max_context";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("512"), std::string::npos) << error.what();
  }
}

TEST(EngineLibrary, FailuresHaveACodeAndNumbers) {
  const auto code_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Failure& failure) {
      EXPECT_STRNE(failure.what(), "");
      return failure.code();
    }
    return "none";
  };
  EXPECT_EQ(code_of([] { Model("/no/such/folder"); }), "io");
  EXPECT_EQ(code_of([] { Model(kFolder, {.backend = "abacus"}); }), "invalid_request");
  EXPECT_EQ(code_of([] { storyteller().generate("x", greedy(100000)); }), "invalid_request");
  EXPECT_EQ(code_of([] { storyteller().generate("\xff", greedy(4)); }), "invalid_request");
}

TEST(EngineLibrary, TheSameFromC) {
  const Result wanted = storyteller().generate("Once upon a time", greedy(8));
  fourfold_model_options room = FOURFOLD_INIT(fourfold_model_options);
  room.threads = 1;
  room.max_context = 256;
  room.max_sequences = 1;
  fourfold_model* model = nullptr;
  ASSERT_EQ(fourfold_model_open(kFolder.c_str(), &room, &model), FOURFOLD_OK) << fourfold_last_error();
  fourfold_generate_options options = FOURFOLD_INIT(fourfold_generate_options);
  options.max_tokens = 8;
  options.has_temperature = 1;
  std::string text;
  fourfold_generate_result result = FOURFOLD_INIT(fourfold_generate_result);
  const auto add = [](void* user, const char* piece, std::size_t count) -> std::int32_t {
    static_cast<std::string*>(user)->append(piece, count);
    return 0;
  };
  ASSERT_EQ(fourfold_generate(model, "Once upon a time", &options, add, &text, &result), FOURFOLD_OK);
  EXPECT_EQ(text, wanted.text);
  EXPECT_EQ(result.end, FOURFOLD_END_MAX_TOKENS);
  EXPECT_EQ(result.answer_tokens, 8);
  EXPECT_EQ(fourfold_generate(model, nullptr, &options, add, &text, &result), FOURFOLD_INVALID_REQUEST);
  // Stop strings: the second word of the answer ends it; places without a string are refused.
  const std::string second = wanted.text.substr(wanted.text.find(' ', 1) + 1, 3);
  const char* const stops[] = {second.c_str(), nullptr};
  options.stops = stops;
  options.stop_count = 1;
  text.clear();
  ASSERT_EQ(fourfold_generate(model, "Once upon a time", &options, add, &text, &result), FOURFOLD_OK);
  EXPECT_EQ(text, wanted.text.substr(0, wanted.text.find(second)));
  EXPECT_EQ(result.end, FOURFOLD_END_STOP);
  options.stop_count = 2;
  EXPECT_EQ(fourfold_generate(model, "x", &options, nullptr, nullptr, nullptr), FOURFOLD_INVALID_REQUEST);
  EXPECT_NE(std::strstr(fourfold_last_error(), "stop string 1 is null"), nullptr) << fourfold_last_error();
  options.stops = nullptr;
  options.stop_count = 1;
  EXPECT_EQ(fourfold_generate(model, "x", &options, nullptr, nullptr, nullptr), FOURFOLD_INVALID_REQUEST);
  EXPECT_NE(std::strstr(fourfold_last_error(), "stops is null"), nullptr) << fourfold_last_error();
  options.stop_count = 0;
  options.max_tokens = -3;
  EXPECT_EQ(fourfold_generate(model, "x", &options, nullptr, nullptr, nullptr), FOURFOLD_INVALID_REQUEST);
  EXPECT_NE(std::strstr(fourfold_last_error(), "-3"), nullptr) << fourfold_last_error();
  fourfold_model_close(model);
  EXPECT_NE(fourfold_model_open("/no/such/folder", nullptr, &model), FOURFOLD_OK);
  EXPECT_EQ(model, nullptr);
  // A newer caller's struct: what this library does not know must be zero, to the last byte.
  struct Longer {
    fourfold_model_options known = FOURFOLD_INIT(fourfold_model_options);
    unsigned char unknown[8] = {};
  } longer;
  longer.known.struct_size = sizeof longer;
  for (unsigned char& byte : longer.unknown) {
    byte = 1;
    EXPECT_EQ(fourfold_model_open(kFolder.c_str(), &longer.known, &model), FOURFOLD_INVALID_REQUEST);
    byte = 0;
  }
  EXPECT_EQ(fourfold_version(), static_cast<std::uint32_t>(FOURFOLD_VERSION));
  EXPECT_EQ(version(), fourfold_version());
}

}  // namespace
}  // namespace fourfold::library
#endif
