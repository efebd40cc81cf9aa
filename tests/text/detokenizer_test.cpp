// Streams of random ids are in tokenizer_test; here one character over several tokens.
#include "text/detokenizer.h"

#include <gtest/gtest.h>

namespace fourfold::text {
namespace {

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const Tokenizer tokenizer = Tokenizer::load(std::string(FOURFOLD_TEXT_UNPACKED) + "/qwen3.tokenizer.json");
  // The four bytes of U+1F600 as single-byte tokens, then a letter.
  Detokenizer stream(tokenizer);
  EXPECT_EQ(stream.push(172), "");
  EXPECT_EQ(stream.push(253), "");
  EXPECT_EQ(stream.push(246), "");
  EXPECT_TRUE(stream.holds_bytes());
  EXPECT_EQ(stream.push(222), "\U0001F600");
  EXPECT_EQ(stream.push(172), "");
  EXPECT_EQ(stream.push(64),
            "\uFFFD"
            "a");
  EXPECT_EQ(stream.push(172), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Detokenizer, SkipsSpecialTokensOnly) {
  const Tokenizer tokenizer = Tokenizer::load(std::string(FOURFOLD_TEXT_UNPACKED) + "/qwen3.tokenizer.json");
  Detokenizer stream(tokenizer, {.skip_special = true});
  EXPECT_EQ(stream.push(*tokenizer.added_token("<|im_end|>")), "");
  EXPECT_EQ(stream.push(*tokenizer.added_token("<think>")), "<think>");
}

}  // namespace
}  // namespace fourfold::text
