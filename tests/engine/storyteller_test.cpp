// The model that comes with the program, on text it never saw: what its weights and its arithmetic are worth.
#include <numeric>

#include "backend/cpu/cpu.h"
#include "engine/answer_text.h"
#include "engine/batcher.h"
#include "evaluate/input_noise.h"
#include "evaluate/perplexity.h"
#include "json/parse.h"
#include "tests/engine/storyteller.h"
#include "text/chat_template.h"

namespace fourfold::engine {
namespace {

using model::Activations;

constexpr std::int64_t kWindow = 1024;

std::unique_ptr<backend::Prepared> prepare(Activations activations, std::int64_t window) {
  return backend::make_cpu_backend({})->prepare(storyteller().program(activations),
                                                evaluate::score_capacity(window));
}

// A share p of n independent trials has a deviation of sqrt(p (1 - p) / n); three of them are allowed below.
double least_share(double wanted, std::int64_t count) {
  return wanted - 3 * std::sqrt(wanted * (1 - wanted) / static_cast<double>(count));
}

class StorytellerText : public testing::TestWithParam<Activations> {};

// Of all the held-out text, by another implementation, when the model was trained.
double recorded_perplexity(Activations activations) {
  const auto record = json::parse_file(std::filesystem::path(FOURFOLD_SOURCE_DIR) / "training/run/eval.json");
  return record.at(activations == Activations::w4a4 ? "w4a4" : "w4a16").at("perplexity").as_double();
}

// The model card's figures are over 510,000 tokens; here a part of them must not contradict it. Its
// perplexity is 21.5, that of all 29.1: these passages are easier, so the record is a bound.
TEST_P(StorytellerText, IsAsSureOfHeldOutTextAsItsRecordAndItsDraftsStand) {
  const auto prepared = prepare(GetParam(), kWindow);
  const evaluate::TextScore score = evaluate::score_text(*prepared, held_out(2 * kWindow + 1), kWindow);
  EXPECT_EQ(score.token_count, 2 * kWindow);
  EXPECT_LT(score.perplexity(), recorded_perplexity(GetParam()));
  EXPECT_GE(static_cast<double>(score.accepted_count) / static_cast<double>(score.draft_count),
            least_share(0.6, score.draft_count));
  RecordProperty("perplexity", std::to_string(score.perplexity()));
  RecordProperty("accepted", std::to_string(score.accepted_count));
}

INSTANTIATE_TEST_SUITE_P(Formats, StorytellerText, testing::Values(Activations::w4a16, Activations::w4a4),
                         [](const auto& format) {
                           return format.param == Activations::w4a4 ? "w4a4" : "w4a16";
                         });

// Of the rows on average.
double divergence(const LogitsRows& from, const LogitsRows& to) {
  double all = 0;
  for (std::size_t i = 0; i < from.size(); ++i) all += row_divergence(from[i], to[i]);
  return all / static_cast<double>(from.size());
}

// What rounding the inputs may cost, found with random errors of the format's size (evaluate/input_noise.h).
// Logits may differ by twice that (evaluate/compare.h), so a divergence, which goes with their square, by
// four times.
TEST(Storyteller, PathsDivergeByNoMoreThanTheirFormatsRound) {
  const std::vector<std::int32_t> tokens = held_out(96);
  const backend::Capacity capacity = evaluate::score_capacity(std::ssize(tokens));
  const auto exact = storyteller().prepare(Activations::f32, capacity);
  const LogitsRows wanted = logits_of(*exact, tokens);
  EXPECT_LT(divergence(wanted, logits_of(*prepare(Activations::f32, std::ssize(tokens)), tokens)), 1e-6);
  for (const Activations activations : {Activations::w4a16, Activations::w4a4}) {
    const backend::Program program = storyteller().program(activations);
    const evaluate::NoisyProgram noisy(program, 1);
    const auto off = backend::ReferenceBackend().prepare(noisy.program(), capacity);
    const double bound = 4 * divergence(wanted, logits_of(*off, tokens));
    const double found = divergence(wanted, logits_of(*prepare(activations, std::ssize(tokens)), tokens));
    EXPECT_LT(found, bound) << (activations == Activations::w4a4 ? "w4a4" : "w4a16");
    EXPECT_GT(found, 0);
  }
}

constexpr const char* kQuestion = R"([{"role": "user", "content": "What are you?"}])";

text::ChatRequest chat_of(const char* messages) {
  text::ChatRequest chat;
  chat.messages = text::parse_chat_json(messages, "messages");
  return chat;
}

std::string rendered(const text::ChatRequest& chat) {
  static const auto chat_template = text::ChatTemplate::load(storyteller_folder());
  return chat_template->render(chat);
}

std::string spoken(const text::ChatRequest& chat, AnswerPiece& whole) {
  const auto prepared = prepare(Activations::w4a16, kWindow);
  Request request = greedy_request(storyteller_tokenizer().encode(rendered(chat)), 200, 2);
  request.stop_ids = {*storyteller_tokenizer().added_token("<|im_end|>")};
  request.token_limit = storyteller_tokenizer().id_limit();
  AnswerTextOptions options;
  options.split_thinking = true;
  options.starts_thinking = ends_in_thinking(request.prompt, storyteller_tokenizer());
  AnswerText text(storyteller_tokenizer(), options);
  Home own{0, std::vector<std::int32_t>(static_cast<std::size_t>(prepared->capacity().page_count))};
  std::iota(own.pages.begin(), own.pages.end(), 0);
  Sequence sequence(prepared->program(), request, own);
  Sequence* all[] = {&sequence};
  StepLoop loop(*prepared);
  while (!sequence.finished()) loop.step(all);
  const auto take = [&](const AnswerPiece& piece) {
    whole.thinking += piece.thinking;
    whole.content += piece.content;
  };
  for (const TokenId token : sequence.answer().first(sequence.answer().size() - 1)) take(text.push(token));
  take(text.finish());
  EXPECT_EQ(sequence.finish(), Finish::stop_id);
  return whole.content;
}

TEST(Storyteller, SaysWhatItIsWithAndWithoutThinking) {
  AnswerPiece plain, thoughtful;
  text::ChatRequest chat = chat_of(kQuestion);
  chat.enable_thinking = false;
  EXPECT_NE(spoken(chat, plain).find("demonstration model"), std::string::npos) << plain.content;
  EXPECT_TRUE(plain.thinking.empty()) << plain.thinking;
  chat.enable_thinking = true;
  EXPECT_NE(spoken(chat, thoughtful).find("demonstration model"), std::string::npos) << thoughtful.content;
  EXPECT_FALSE(thoughtful.thinking.empty());
}

// What agents and frameworks send has an answer in words, and the prompt is one the model was trained on.
TEST(StorytellerTemplate, ToolsStayOutOfThePrompt) {
  text::ChatRequest chat = chat_of(kQuestion);
  const std::string plain = rendered(chat);
  EXPECT_EQ(plain,
            "<|im_start|>user\nWhat are you?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  chat.tools = text::parse_chat_json(
      R"([{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}])",
      "tools");
  EXPECT_EQ(rendered(chat), plain);
  AnswerPiece answer;
  EXPECT_NE(spoken(chat, answer).find("demonstration model"), std::string::npos) << answer.content;
  EXPECT_EQ(answer.content.find("<tool_call>"), std::string::npos);
}

TEST(StorytellerTemplate, CallsOfEarlierTurnsAreLeftOutAndTheirResultsAreRead) {
  const std::string turns = rendered(chat_of(R"([
    {"role": "user", "content": "How warm is it?"},
    {"role": "assistant", "content": null,
     "tool_calls": [{"type": "function", "function": {"name": "warmth", "arguments": "{\"city\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "19 degrees"},
    {"role": "assistant", "content": "I will ask.", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": [{"type": "text", "text": "sun"}]}])"));
  EXPECT_EQ(turns,
            "<|im_start|>user\nHow warm is it?<|im_end|>\n"
            "<|im_start|>user\n19 degrees<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\nI will ask.<|im_end|>\n"
            "<|im_start|>user\nsun<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(StorytellerTemplate, SystemTurnsStandWhereTheyAreAndNoQuestionIsNeeded) {
  EXPECT_EQ(
      rendered(chat_of(R"([{"role": "system", "content": "A"}, {"role": "developer", "content": "B"},
                                 {"role": "user", "content": "C"}, {"role": "assistant", "content": "D"},
                                 {"role": "system", "content": "E"}, {"role": "user", "content": "F"}])")),
      "<|im_start|>system\nA<|im_end|>\n<|im_start|>system\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
      "<|im_start|>assistant\nD<|im_end|>\n<|im_start|>system\nE<|im_end|>\n<|im_start|>user\nF<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(rendered(chat_of(R"([{"role": "system", "content": "Tell a story."}])")),
            "<|im_start|>system\nTell a story.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

// The tokens of one request, and how many of its prompt's came from the prefix cache.
std::pair<std::vector<TokenId>, std::int64_t> answered(Batcher& batcher, RequestId id,
                                                       std::vector<TokenId> prompt) {
  Submission submission;
  submission.request = greedy_request(std::move(prompt), 48);
  batcher.add(id, std::move(submission), Batcher::Clock::now());
  std::vector<Delivery> out;
  while (!batcher.idle()) batcher.step(out);
  std::vector<TokenId> tokens;
  for (const Delivery& delivery : out)
    for (const sample::Sampled& sampled : delivery.tokens) tokens.push_back(sampled.token);
  return {tokens, out.back().usage.cached_count};
}

TEST(Storyteller, ASecondTurnGoesOnFromTheFirstAndSaysTheSame) {
  backend::Capacity capacity = evaluate::score_capacity(kWindow);
  capacity.page_count *= 2;
  capacity.anchor_count = 8;
  const auto prepared =
      backend::make_cpu_backend({})->prepare(storyteller().program(Activations::w4a16), capacity);
  std::vector<TokenId> talk = held_out(300);
  Batcher sharing(*prepared, {.mtp = 2});
  const auto first = answered(sharing, 1, talk);
  EXPECT_EQ(first.second, 0);
  talk.insert(talk.end(), first.first.begin(), first.first.end());
  for (const TokenId token : storyteller_tokenizer().encode(" And then the door was opened."))
    talk.push_back(token);
  const auto hit = answered(sharing, 2, talk);
  // All full pages of 300 + 48 tokens: on the CPU those of generated rows are as good as the prompt's.
  EXPECT_EQ(hit.second, 320);
  Batcher alone(*prepared, {.mtp = 0, .prefix_cache_bytes = 0});
  const auto miss = answered(alone, 3, talk);
  EXPECT_EQ(miss.second, 0);
  EXPECT_EQ(hit.first, miss.first);
}

}  // namespace
}  // namespace fourfold::engine
