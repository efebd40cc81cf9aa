#include "engine/answer_text.h"

#include <gtest/gtest.h>

#include "json/parse.h"

namespace fourfold::engine {
namespace {

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer loaded = text::Tokenizer::load(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json");
  return loaded;
}

// Everything an answer of this text shows, token by token; "|" when a stop string ended it.
AnswerPiece show(const std::vector<text::TokenId>& ids, AnswerTextOptions options) {
  AnswerText answer(tokenizer(), std::move(options));
  AnswerPiece all;
  const auto add = [&](const AnswerPiece& piece) {
    all.thinking += piece.thinking;
    all.content += piece.content;
  };
  for (const text::TokenId id : ids) {
    add(answer.push(id));
    if (answer.stopped()) break;
  }
  add(answer.finish());
  if (answer.stopped()) all.content += "|";
  return all;
}

AnswerPiece show(const std::string& text, AnswerTextOptions options) {
  return show(tokenizer().encode(text), std::move(options));
}

void expect_piece(const AnswerPiece& piece, const std::string& thinking, const std::string& content) {
  EXPECT_EQ(piece.thinking, thinking);
  EXPECT_EQ(piece.content, content);
}

AnswerTextOptions in_thought() { return {.stops = {}, .split_thinking = true, .starts_thinking = true}; }

// The same letters without the added token: as ordinary bytes.
std::vector<text::TokenId> spelled(std::string_view text) {
  std::vector<text::TokenId> ids;
  for (const char byte : text)
    for (text::TokenId id = 0; id < tokenizer().id_limit(); ++id)
      if (tokenizer().token_bytes(id) == std::string_view(&byte, 1)) ids.push_back(id);
  return ids;
}

TEST(AnswerText, PlainTextPassesThrough) {
  expect_piece(show("Hello, wörld 雪!", {}), "", "Hello, wörld 雪!");
  expect_piece(show("a</think>b", {}), "", "a</think>b");
  expect_piece(show("a<|im_end|>", {}), "", "a");
}

TEST(AnswerText, ACallEndsThinkingWhereCallsAreRead) {
  AnswerTextOptions options = in_thought();
  expect_piece(show("I call<tool_call>x", options), "I call<tool_call>x", "");
  options.reads_calls = true;
  expect_piece(show("I call<tool_call>x</think>", options), "I call", "<tool_call>x");
  options.stops = {"END"};
  // Where a guide waits for the token, letters do not end it.
  AnswerTextOptions guided = in_thought();
  guided.only_token_ends_thinking = true;
  expect_piece(show(spelled("a\n</think>b"), in_thought()), "a\n", "b");
  expect_piece(show(spelled("a\n</think>b"), guided), "a\n</think>b", "");
  AnswerText answer(tokenizer(), options);
  EXPECT_TRUE(answer.thinking());
  for (const text::TokenId id : tokenizer().encode("a</think>b")) answer.push(id);
  EXPECT_FALSE(answer.thinking());
  EXPECT_EQ(answer.stop(), "");
  for (const text::TokenId id : tokenizer().encode("END")) answer.push(id);
  EXPECT_EQ(answer.stop(), "END");
}

// What is left at the end belongs to whatever is being said, also where the tokenizer has no such tokens.
TEST(AnswerText, WithoutTheTokensNothingEndsThinking) {
  std::string json =
      json::read_text_file(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json", std::size_t{1} << 24);
  for (const std::string tag : {"<think>", "</think>", "<tool_call>"}) {
    const std::string entry = "\"content\":\"" + tag + "\"";
    ASSERT_NE(json.find(entry), std::string::npos);
    json.replace(json.find(entry), entry.size(), "\"content\":\"<no " + tag.substr(1) + "\"");
  }
  const text::Tokenizer without = text::Tokenizer::parse(json, "without");
  ASSERT_FALSE(without.added_token("<tool_call>"));
  AnswerTextOptions options = in_thought();
  options.reads_calls = true;
  AnswerText answer(without, options);
  std::string thinking;
  for (const text::TokenId id : without.encode("I call")) thinking += answer.push(id).thinking;
  const AnswerPiece rest = answer.finish();
  expect_piece({thinking + rest.thinking, rest.content}, "I call", "");
}

TEST(AnswerText, ThinkingIsPartedFromSpeaking) {
  expect_piece(show("I wonder.\n</think>\n\nYes.\n\nNo.", in_thought()), "I wonder.\n", "Yes.\n\nNo.");
  expect_piece(show("mid-line</think>Yes", in_thought()), "mid-line", "Yes");
  expect_piece(show("<think>\nagain</think>x", in_thought()), "\nagain", "x");
  expect_piece(show("never ends", in_thought()), "never ends", "");
  // A template that leaves the tag to the model.
  expect_piece(show("<think>hm</think>ok", {.stops = {}, .split_thinking = true}), "hm", "ok");
  expect_piece(show("said <think> later", {.stops = {}, .split_thinking = true}), "", "said <think> later");
  expect_piece(show("a</think>b</think>c", in_thought()), "a", "bc");
}

TEST(AnswerText, ASpelledOutTagCountsAtTheStartOfALine) {
  expect_piece(show(spelled("hm\n</think>\nok"), in_thought()), "hm\n", "ok");
  expect_piece(show(spelled("hm </think> ok"), in_thought()), "hm </think> ok", "");
  expect_piece(show(spelled("hm\n</thinking"), in_thought()), "hm\n</thinking", "");
  expect_piece(show(spelled("hm\n</thi"), in_thought()), "hm\n</thi", "");
  expect_piece(show(spelled("\n<\n</think>x"), in_thought()), "\n<\n", "x");
}

TEST(AnswerText, StopStringsEndIt) {
  expect_piece(show("one two three", {.stops = {"two"}}), "", "one |");
  AnswerTextOptions options = in_thought();
  options.stops = {"two"};
  expect_piece(show("one two</think>three", options), "one ", "|");
  expect_piece(show("one</think>two three", options), "one", "|");
  expect_piece(show("one tw", {.stops = {"two"}}), "", "one tw");
}

// Thought that may be the start of a stop string is shown when the thinking ends, not after the answer.
TEST(AnswerText, StopStringsMayBeShownAndMayHaveToWait) {
  expect_piece(show("one two three two", {.stops = {" two"}}), "", "one|");
  expect_piece(show("one two three two", {.stops = {" two"}, .show_stop = true}), "", "one two|");
  const std::string text = "one two three two";
  const auto count = [](std::string_view part) { return std::ssize(tokenizer().encode(part)); };
  const std::int64_t two = count("one two");
  ASSERT_EQ(two + count(" three two"), count(text));
  expect_piece(show(text, {.stops = {" two"}, .min_tokens = two - 1}), "", "one|");
  expect_piece(show(text, {.stops = {" two"}, .min_tokens = two}), "", "one two three|");
  expect_piece(show(text, {.stops = {" two"}, .min_tokens = count(text)}), "", text);
  expect_piece(show(text, {.stops = {"wo th"}, .min_tokens = two}), "", "one t|");  // it ends behind them
  AnswerTextOptions thinks = in_thought();
  thinks.stops = {"two"};
  thinks.min_tokens = count("one two</think>two");
  expect_piece(show("one two</think>two two", thinks), "one two", "two |");
}

TEST(AnswerText, ControlTokensMayBeShown) {
  expect_piece(show("a<|im_end|>b", {.stops = {}, .show_special = true}), "", "a<|im_end|>b");
  expect_piece(show("a<|im_end|>b", {}), "", "ab");
}

TEST(AnswerText, ThoughtIsNotHeldBackBeyondItsEnd) {
  AnswerTextOptions options = in_thought();
  options.stops = {"two"};
  AnswerText answer(tokenizer(), options);
  AnswerPiece shown;
  for (const text::TokenId id : tokenizer().encode("one tw</think>o three")) {
    const AnswerPiece piece = answer.push(id);
    if (!piece.content.empty()) {
      EXPECT_EQ(shown.thinking + piece.thinking, "one tw");
    }
    shown.thinking += piece.thinking;
    shown.content += piece.content;
  }
  expect_piece(shown, "one tw", "o three");
  expect_piece(answer.finish(), "", "");
}

TEST(AnswerText, ABrokenCharacterIsReplacedAtTheEnd) {
  expect_piece(show(spelled("a\xE9"), {}), "", "a\xEF\xBF\xBD");
  expect_piece(show(spelled("a\xE9"), in_thought()), "a\xEF\xBF\xBD", "");
}

TEST(EndsInThinking, AsksThePromptItself) {
  const auto ask = [](const std::string& text) {
    return ends_in_thinking(tokenizer().encode(text), tokenizer());
  };
  EXPECT_TRUE(ask("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ask("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ask("<|im_start|>assistant\n"));
  EXPECT_FALSE(ask("<think>a</think>b<|im_end|><|im_start|>assistant\n"));
  EXPECT_TRUE(ask("<think>a</think>b<|im_end|><|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thinking({}, tokenizer()));
  // Somebody who asks about the tag has not begun to think.
  EXPECT_FALSE(ask("<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n"));
}

}  // namespace
}  // namespace fourfold::engine
