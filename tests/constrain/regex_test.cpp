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
  EXPECT_NE(why("((?=a)b)*").find("look-ahead inside a repeat"), std::string::npos);
  EXPECT_NE(why("a(?=^b)").find("^ inside or behind a look-ahead"), std::string::npos);
  EXPECT_NE(why("(?<!a)b").find("look-behind"), std::string::npos);
  EXPECT_NE(why("\\bword").find("\\b is not supported"), std::string::npos);
  EXPECT_NE(why("(?i)a").find("flags"), std::string::npos);
  EXPECT_NE(why("a++").find("possessive"), std::string::npos);
  EXPECT_NE(why("a{3,2}").find("{3,2}"), std::string::npos);
  EXPECT_NE(why("a{20000}").find("10000"), std::string::npos);
  EXPECT_NE(why("\\p{Greek}").find("\\p{Greek}"), std::string::npos);
  for (const char* broken : {"(", ")", "(a", "a)", "[", "[a", "*", "a**", "\\", "[b-a]", "(?<n", "\\xZZ",
                             "\\uD800", "[[:alpha:]]", "\\p", "\\p{L", "\xFF", "\\Q"})
    EXPECT_NE(why(broken), "") << broken;
  for (const char* none : {"[^\\d\\D]", "a^b", "a$b", "(?!)", "a(?=b)c"})
    EXPECT_NE(why(none).find("no text can have the form"), std::string::npos) << none;
}

// 200 levels, of which the expression itself is the first.
TEST(Regex, DepthIsExact) {
  const auto why = [](int groups) {
    return refusal([&] { compile_regex(std::string(groups, '(') + "a" + std::string(groups, ')')); });
  };
  EXPECT_EQ(why(199), "");
  EXPECT_NE(why(200).find("deeper than 200 levels"), std::string::npos);
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

TEST(Regex, AnchorsWhereverTheyStand) {
  EXPECT_TRUE(matches("(^a|b$)c?", "ac"));
  EXPECT_TRUE(matches("\\Aab\\Z", "ab"));
  EXPECT_TRUE(matches("(^|x)a($|y)", "xay"));
  EXPECT_TRUE(matches("$^", ""));
  EXPECT_FALSE(matches("(a|$)b", "b"));
  EXPECT_TRUE(matches("(?:a$)?b?", "b"));
  EXPECT_FALSE(matches("(?:a$)?b?", "ab"));
}

TEST(Regex, LookAhead) {
  const auto pydantic_decimal = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$";
  for (const char* good : {"1", "-1.5", "+.5", "007", "3."})
    EXPECT_TRUE(matches(pydantic_decimal, good)) << good;
  for (const char* bad : {"", "-", "+.", ".", "1e3", "1.2.3", "--1"})
    EXPECT_FALSE(matches(pydantic_decimal, bad)) << bad;
  // At most 5 digits, 2 of them decimals: a look-ahead in one alternative of a group.
  const auto digits = "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)";
  for (const char* good : {"123", "0001.25", "-999.99", "12.3400"})
    EXPECT_TRUE(matches(digits, good)) << good;
  for (const char* bad : {"1234", "1.234", "-", "."}) EXPECT_FALSE(matches(digits, bad)) << bad;
  const auto password = "^(?=.*[a-z])(?=.*[A-Z])(?=.*\\d).{4,8}$";
  EXPECT_TRUE(matches(password, "aB3\xC3\xA9"));
  for (const char* bad : {"ab3x", "aB3", "aB345678901"}) EXPECT_FALSE(matches(password, bad)) << bad;
  // In what may be absent, and one in another.
  const auto span = "P(?=\\d|T)(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?)?";
  for (const char* good : {"P1D", "PT5M", "P1DT2H"}) EXPECT_TRUE(matches(span, good)) << good;
  for (const char* bad : {"P", "PT", "P1DT"}) EXPECT_FALSE(matches(span, bad)) << bad;
  EXPECT_TRUE(matches("(?!(?=ab)a)[ab]+", "ba"));
  EXPECT_FALSE(matches("(?!(?=ab)a)[ab]+", "ab"));
}

// Small random expressions against std::regex on every text of up to four letters.
std::string random_regex(Random& random, int depth, bool anchors) {
  const auto pick = [&](int count) { return static_cast<int>(random.bits() % static_cast<unsigned>(count)); };
  const auto part = [&] { return random_regex(random, depth - 1, anchors); };
  if (anchors && pick(9) == 0) return std::string(1, "^$"[pick(2)]);
  if (depth == 0 || pick(4) == 0) return std::string(1, "abc."[pick(4)]);
  if (anchors && pick(6) == 0) return (pick(2) ? "(?=" : "(?!") + part() + ")";
  switch (pick(6)) {
    case 0: return part() + part();
    case 1: return "(" + part() + "|" + part() + ")";
    case 2: return "(?:" + part() + ")*";
    case 3: return "(" + part() + "){1,2}";
    case 4: return pick(2) ? "[ab]" : "[^b]";
    default: return "(?:" + part() + ")?";
  }
}

TEST(Regex, AgreesWithTheStandardLibrary) {
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; texts[i].size() < 4; ++i)
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  Random random(7);
  int compared = 0, looked = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string pattern = random_regex(random, 3, round % 4 != 0);
    const std::regex judge(pattern);
    for (const bool whole : {true, false}) {
      std::shared_ptr<const Grammar> grammar;
      std::string refused;
      try {
        grammar = whole ? compile_regex(pattern) : compile_json_schema(R"({"pattern": ")" + pattern + "\"}");
      } catch (const Error& error) {
        refused = error.what();
        if (refused.find("look-ahead") != std::string::npos) continue;  // one of those not supported
        ASSERT_NE(refused.find("no text can have the form"), std::string::npos) << pattern << "\n" << refused;
      }
      ++compared;
      looked += pattern.find("(?=") != std::string::npos || pattern.find("(?!") != std::string::npos;
      for (const std::string& text : texts) {
        const bool wanted = whole ? std::regex_match(text, judge) : std::regex_search(text, judge);
        const bool is = grammar && accepts(*grammar, whole ? text : '"' + text + '"');
        ASSERT_EQ(is, wanted) << pattern << (whole ? " is " : " in ") << text << " " << refused;
      }
    }
  }
  EXPECT_GT(compared, 1500);
  EXPECT_GT(looked, 200);
}

}  // namespace
}  // namespace fourfold::constrain
