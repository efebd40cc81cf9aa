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
  std::string split(std::string_view text, const SpecialPlaces& special = SpecialPlaces::everywhere()) const {
    std::string out;
    for (const TextSpan& span : split_at_added_tokens(text, finder, tokens, special)) {
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
  EXPECT_EQ(f.split("<s><t>", SpecialPlaces::nowhere()), "(<s>)#2");
}

TEST(AddedTokens, SwallowWhiteSpaceWhenAsked) {
  Fixture f;
  AddedToken greedy = token(1, "<g>");
  greedy.strip_left = greedy.strip_right = true;
  f.add(greedy);
  EXPECT_EQ(f.split("a \u3000<g>\n <g> b"), "(a)#1#1(b)");
}

// A special token is found only where all of it may stand; shorter ones and those inside of it are found
// then.
TEST(AddedTokens, SpecialOnesOnlyInTheirPlaces) {
  Fixture f;
  for (const auto& [id, content] : {std::pair(1, "<a>"), {2, "<a>b"}, {3, "a>"}}) {
    AddedToken special = token(id, content);
    special.special = true;
    f.add(special);
  }
  f.add(token(4, "b"));
  const auto within = [](std::vector<text::Run> runs) { return SpecialPlaces::within(std::move(runs)); };
  EXPECT_EQ(f.split("<a>b", within({{0, 4}})), "#2");
  EXPECT_EQ(f.split("<a>b", within({{0, 3}})), "#1#4");
  EXPECT_EQ(f.split("<a>b", within({{1, 4}})), "(<)#3#4");
  EXPECT_EQ(f.split("<a>b", within({{0, 2}, {2, 4}})), "(<a>)#4") << "two runs that touch are two";
  EXPECT_EQ(f.split("<a><a><a>", within({{3, 6}})), "(<a>)#1(<a>)");
}

// Where parts were rewritten, the places move along; a part that changed is a place only if it was all one.
TEST(AddedTokens, PlacesFollowARewrittenText) {
  const SpecialPlaces places = SpecialPlaces::within({{0, 4}, {6, 12}});
  const SpecialPlaces moved = places.rewritten({{1, 3, 1, 2}, {5, 7, 4, 7}, {8, 10, 8, 9}});
  EXPECT_TRUE(moved.contain(0, 3)) << "0, the rewritten part, and what stood behind it";
  EXPECT_FALSE(moved.contain(3, 4));
  EXPECT_FALSE(moved.contain(4, 7)) << "half of it was none";
  EXPECT_TRUE(moved.contain(7, 11));
  EXPECT_FALSE(moved.contain(6, 8));
  EXPECT_FALSE(moved.contain(7, 12));
}

}  // namespace
}  // namespace fourfold::text
