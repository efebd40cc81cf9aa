#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace fourfold::text {
namespace {

struct Fixture {
  std::vector<AddedToken> tokens;
  AddedTokenFinder finder;
  void add(AddedToken token) {
    finder.add(token.content, static_cast<int>(tokens.size()));
    tokens.push_back(std::move(token));
  }
  std::string split(std::string_view text, bool special_as_text = false) const {
    std::string out;
    for (const TextSpan& span : split_at_added_tokens(text, finder, tokens, special_as_text)) {
      out += span.token_index < 0
                 ? "(" + std::string(text.substr(span.begin, span.end - span.begin)) + ")"
                 : "#" + std::to_string(tokens[static_cast<std::size_t>(span.token_index)].id);
    }
    return out;
  }
};

AddedToken token(TokenId id, std::string content) {
  AddedToken out;
  out.id = id;
  out.content = std::move(content);
  return out;
}

TEST(AddedTokens, LeftmostThenLongest) {
  Fixture f;
  f.add(token(1, "<a>"));
  f.add(token(2, "<a>b"));
  f.add(token(3, "a>bc"));
  EXPECT_EQ(f.split("x<a>bc<a>y"), "(x)#2(c)#1(y)");
  EXPECT_EQ(f.split("<a"), "(<a)");
  EXPECT_EQ(f.split(""), "");
}

TEST(AddedTokens, SpecialOnesCanStayText) {
  Fixture f;
  AddedToken special = token(1, "<s>");
  special.special = true;
  f.add(special);
  f.add(token(2, "<t>"));
  EXPECT_EQ(f.split("<s><t>", true), "(<s>)#2");
}

TEST(AddedTokens, SwallowWhiteSpaceWhenAsked) {
  Fixture f;
  AddedToken greedy = token(1, "<g>");
  greedy.strip_left = greedy.strip_right = true;
  f.add(greedy);
  EXPECT_EQ(f.split("a \u3000<g>\n <g> b"), "(a)#1#1(b)");
}

}  // namespace
}  // namespace fourfold::text
