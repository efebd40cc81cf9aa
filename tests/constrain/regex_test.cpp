#include "constrain/regex.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/random.h"
#include "tests/constrain/accepts.h"

namespace fourfold::constrain {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  return accepts(*compile_regex(pattern), text);
}

TEST(Regex, TakesWhatItSays) {
  EXPECT_TRUE(matches("abc", "abc"));
  EXPECT_FALSE(matches("abc", "abcd"));
  EXPECT_TRUE(matches("a*", ""));
  EXPECT_TRUE(matches("^(a|b)+?$", "abba"));
  EXPECT_TRUE(matches("a{2,3}", "aaa"));
  EXPECT_FALSE(matches("a{2,3}", "aaaa"));
  EXPECT_TRUE(matches("a{2,}", "aaaaa"));
  EXPECT_TRUE(matches("x{y", "x{y"));
  EXPECT_TRUE(matches("[a-c\\d-]+", "ab3-"));
  EXPECT_FALSE(matches("[^a-c]", "b"));
  EXPECT_TRUE(matches("[^a-c]", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(matches("(?P<year>\\d{4})-(?<month>\\d\\d)", "2026-11"));
  EXPECT_TRUE(matches("\\x41\\u00e9\\.", "A\xC3\xA9."));
  EXPECT_TRUE(matches(".", "\xE9\x9B\xAA"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_TRUE(matches("\\p{L}+", "\xC3\xA9\xE9\x9B\xAA"));
  EXPECT_FALSE(matches("\\p{L}", "1"));
  EXPECT_TRUE(matches("\\P{N}", "x"));
  EXPECT_TRUE(matches("\\S", "\xC3\xA9"));
  EXPECT_FALSE(matches("\\S", "\xC2\xA0"));  // no-break space
}

TEST(Regex, NeverTakesBrokenUtf8) {
  for (const char* text : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xC3"})
    EXPECT_FALSE(matches("[^a]", text)) << text;
}

TEST(Regex, RefusesByName) {
  const auto why = [](std::string_view pattern) { return refusal([&] { compile_regex(pattern); }); };
  EXPECT_NE(why("(a)\\1").find("back references"), std::string::npos);
  EXPECT_NE(why("(?=a)b").find("look-ahead"), std::string::npos);
  EXPECT_NE(why("(?<!a)b").find("look-behind"), std::string::npos);
  EXPECT_NE(why("\\bword").find("\\b is not supported"), std::string::npos);
  EXPECT_NE(why("(?i)a").find("flags"), std::string::npos);
  EXPECT_NE(why("a++").find("possessive"), std::string::npos);
  EXPECT_NE(why("a{3,2}").find("{3,2}"), std::string::npos);
  EXPECT_NE(why("a{20000}").find("10000"), std::string::npos);
  EXPECT_NE(why("\\p{Greek}").find("\\p{Greek}"), std::string::npos);
  EXPECT_NE(why("a^b").find("^"), std::string::npos);
  for (const char* broken : {"(", ")", "(a", "a)", "[", "[a", "*", "a**", "\\", "[b-a]", "(?<n", "\\xZZ",
                             "\\uD800", "[[:alpha:]]", "\\p", "\\p{L", "\xFF", "\\Q"})
    EXPECT_NE(why(broken), "") << broken;
  EXPECT_NE(why("[^\\d\\D]"), "");  // no text has this form
}

TEST(Regex, BombsAreCheapOrRefused) {
  EXPECT_TRUE(matches("(a+)+$", "aaaa"));
  EXPECT_FALSE(matches("(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"));
  for (const char* bomb : {"((((a{100}){100}){100}){100}){100}", "(a|b)*a(a|b){40}", "(\\p{L}{1,100}){1,100}",
                           "((a?){1000}){1000}", "(x+x+)+y{1,10000}(.*z){900}"})
    EXPECT_NE(refusal([&] { compile_regex(bomb); }).find("compiling the form"), std::string::npos) << bomb;
  EXPECT_NE(refusal([] { compile_regex(std::string(300, '(') + std::string(300, ')')); }), "");
  EXPECT_NE(refusal([] { compile_regex(std::string(2 << 20, 'a')); }).find("bytes"), std::string::npos);
}

// Small random expressions against std::regex on every text of up to five letters.
std::string random_regex(Random& random, int depth) {
  const auto pick = [&](int count) { return static_cast<int>(random.bits() % static_cast<unsigned>(count)); };
  if (depth == 0 || pick(4) == 0) return std::string(1, "abc."[pick(4)]);
  switch (pick(6)) {
    case 0: return random_regex(random, depth - 1) + random_regex(random, depth - 1);
    case 1: return "(" + random_regex(random, depth - 1) + "|" + random_regex(random, depth - 1) + ")";
    case 2: return "(?:" + random_regex(random, depth - 1) + ")*";
    case 3: return "(" + random_regex(random, depth - 1) + "){1,2}";
    case 4: return pick(2) ? "[ab]" : "[^b]";
    default: return "(?:" + random_regex(random, depth - 1) + ")?";
  }
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; texts[i].size() < 5; ++i)
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    const std::string pattern = random_regex(random, 4);
    const std::regex judge(pattern);
    const auto grammar = compile_regex(pattern);
    for (const std::string& text : texts)
      ASSERT_EQ(accepts(*grammar, text), std::regex_match(text, judge)) << pattern << " on " << text;
  }
}

}  // namespace
}  // namespace fourfold::constrain
