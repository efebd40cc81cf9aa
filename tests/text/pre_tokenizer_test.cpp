// Agreement with the package's regular expressions over fuzzed strings is in tokenizer_test; here the shape
// of each rule.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/text/fuzz_strings.h"

namespace fourfold::text {
namespace {

using Kind = SplitRule::Kind;

std::vector<std::string> pieces_of(const SplitRule& rule, std::string_view text) {
  std::vector<std::size_t> ends;
  split_pieces(rule, text, ends);
  std::vector<std::string> out;
  std::size_t start = 0;
  for (const std::size_t end : ends) {
    out.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return out;
}
using Pieces = std::vector<std::string>;

TEST(PreTokenizer, WordsKeepOneCharacterBefore) {
  const SplitRule rule{.kind = Kind::words};
  EXPECT_EQ(pieces_of(rule, "Hello  world 42!\n\n x"),
            (Pieces{"Hello", " ", " world", " ", "4", "2", "!\n\n", " x"}));
  EXPECT_EQ(pieces_of(rule, "I'LL don't"), (Pieces{"I", "'LL", " don", "'t"}));
}

TEST(PreTokenizer, MarksJoinLettersInQwen35Only) {
  EXPECT_EQ(
      pieces_of({.kind = Kind::words, .marks_join = true}, "\u0928\u092e\u0938\u094d\u0924\u0947").size(),
      1u);
  EXPECT_GT(pieces_of({.kind = Kind::words}, "\u0928\u092e\u0938\u094d\u0924\u0947").size(), 1u);
}

TEST(PreTokenizer, NumbersInThrees) {
  EXPECT_EQ(pieces_of({.kind = Kind::words, .digits_max = 3}, "1234567"), (Pieces{"123", "456", "7"}));
}

TEST(PreTokenizer, CaseEndsAWord) {
  EXPECT_EQ(pieces_of({.kind = Kind::cased_words, .digits_max = 3}, "camelCase XMLHttp it's"),
            (Pieces{"camel", "Case", " XMLHttp", " it's"}));
}

TEST(PreTokenizer, PiecesCoverEveryText) {
  const auto fuzz = load_fuzz_pieces();
  for (const Kind kind : {Kind::words, Kind::cased_words, Kind::gpt2, Kind::deepseek_words, Kind::cjk_runs,
                          Kind::number_groups}) {
    for (std::uint64_t i = 0; i < 2'000; ++i) {
      const std::string text = fuzz_string(fuzz, 6, i);
      std::string joined;
      for (const std::string& piece : pieces_of({.kind = kind, .digits_max = 3}, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizer, DoesNotGuessUnknownExpressions) {
  EXPECT_FALSE(known_split_rule(R"(\w+|\s+)").has_value());
}

}  // namespace
}  // namespace fourfold::text
