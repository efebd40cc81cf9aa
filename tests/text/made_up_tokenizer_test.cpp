#include "text/made_up_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::text {
namespace {

TEST(MadeUpTokenizer, EveryIdHasATokenAndTextComesBack) {
  for (const std::int64_t vocab : {289, 320, 640, 4096}) {
    const Tokenizer tokenizer = Tokenizer::parse(make_tokenizer_json(vocab), "made up");
    EXPECT_EQ(tokenizer.id_limit(), vocab);
    for (TokenId id = 0; id < vocab; ++id) EXPECT_FALSE(tokenizer.token_bytes(id).empty()) << id;
    for (const std::string text : {"Hello, world!\n", " kolami  tuba 42", "雪 😀 café", ""})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    const MadeUpTokens tokens = made_up_tokens(vocab);
    EXPECT_EQ(tokenizer.added_token("<|im_end|>"), tokens.end_of_turn);
    EXPECT_EQ(tokenizer.added_token("<|endoftext|>"), tokens.end_of_text);
    EXPECT_EQ(tokens.id_limit, vocab);
  }
}

TEST(MadeUpTokenizer, SyllablesMergeToLongTokens) {
  const Tokenizer tokenizer = Tokenizer::parse(make_tokenizer_json(4096), "made up");
  EXPECT_EQ(tokenizer.encode("ba").size(), 1u);
  EXPECT_EQ(tokenizer.encode("babe").size(), 1u);
  EXPECT_EQ(tokenizer.encode(" ba").size(), 1u);
}

// Special tokens of the published vocabulary have the published ids; what lies beyond is padding.
TEST(MadeUpTokenizer, PublishedSizeHasPublishedIds) {
  const Tokenizer tokenizer = Tokenizer::parse(make_tokenizer_json(248320), "made up");
  EXPECT_EQ(tokenizer.added_token("<|endoftext|>"), 248044);
  EXPECT_EQ(tokenizer.added_token("<|im_start|>"), 248045);
  EXPECT_EQ(tokenizer.added_token("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer.added_token("<tool_call>"), 248058);
  EXPECT_EQ(tokenizer.added_token("<think>"), 248068);
  EXPECT_EQ(tokenizer.added_token("</think>"), 248069);
  EXPECT_EQ(tokenizer.added_token("<|audio_pad|>"), 248076);
  EXPECT_EQ(tokenizer.id_limit(), 248077);
  for (TokenId id = 0; id < 248077; ++id) ASSERT_FALSE(tokenizer.token_bytes(id).empty()) << id;
}

TEST(MadeUpTokenizer, ASmallVocabularyIsRefused) {
  EXPECT_THROW(make_tokenizer_json(288), Error);
  EXPECT_THROW(made_up_tokens(10), Error);
}

TEST(MadeUpTokenizer, TheTemplateIsChatMl) {
  const ChatTemplate chat = ChatTemplate::parse(make_chat_template(), "chat_template.jinja");
  ChatRequest request;
  request.messages = parse_chat_json(
      R"([{"role": "system", "content": " be brief "}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}])",
      "messages");
  EXPECT_EQ(chat.render(request),
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n");
  request.enable_thinking = false;
  EXPECT_TRUE(chat.render(request).ends_with("assistant\n<think>\n\n</think>\n\n"));
}

}  // namespace
}  // namespace fourfold::text
