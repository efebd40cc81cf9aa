#include "text/answer_ends.h"

#include <gtest/gtest.h>

#include "json/parse.h"

namespace fourfold::text {
namespace {

// The small vocabulary with two of its control tokens under other names.
Tokenizer with(const std::string& first, const std::string& second) {
  std::string json =
      json::read_text_file(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json", std::size_t{1} << 24);
  for (const auto& [from, to] : {std::pair(std::string("<|im_start|>"), first), {"<|im_end|>", second}})
    for (std::size_t at; (at = json.find(from)) != std::string::npos;) json.replace(at, from.size(), to);
  return Tokenizer::parse(json, "tokenizer.json");
}

TEST(AnswerEnds, OfFamiliesThatHaveThem) {
  EXPECT_EQ(answer_ends(with("<|call|>", "<|return|>")).size(), 2u);
  const Tokenizer glm = with("<|user|>", "<|observation|>");
  EXPECT_EQ(answer_ends(glm),
            (std::vector<TokenId>{*glm.added_token("<|user|>"), *glm.added_token("<|observation|>")}));
  EXPECT_TRUE(answer_ends(with("<|user|>", "<|call|>")).empty());  // half of each says nothing
  EXPECT_TRUE(answer_ends(with("<|a|>", "<|b|>")).empty());
}

}  // namespace
}  // namespace fourfold::text
