#include "sample/stop_strings.h"

#include "base/random.h"
#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

// The whole text in pieces of these sizes; what came out, and "|" where it stopped.
std::string through(const std::vector<std::string>& stops, const std::string& text,
                    const std::function<std::size_t()>& piece_size) {
  StopStrings matcher(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !matcher.stopped();) {
    const std::size_t count = std::min(piece_size(), text.size() - at);
    out += matcher.push(text.substr(at, count));
    at += count;
  }
  if (matcher.stopped()) return out + "|";
  return out + matcher.finish();
}

TEST(StopStrings, EndTheTextBeforeThem) {
  const auto whole = [] { return std::size_t{1000}; };
  EXPECT_EQ(through({"END"}, "abc END def", whole), "abc |");
  EXPECT_EQ(through({"END"}, "abc EN", whole), "abc EN");
  EXPECT_EQ(through({}, "abc END", whole), "abc END");
  EXPECT_EQ(through({"abc", "b"}, "xabc", whole), "xa|");  // b is complete first
  EXPECT_EQ(through({"c", "bc"}, "abc", whole), "a|");     // together: the longer
  EXPECT_EQ(through({"\n\n"}, "\n\nx", whole), "|");
  EXPECT_EQ(through({"aab"}, "aaab", whole), "a|");
  EXPECT_EQ(through({"é"}, "caf\xC3\xA9!", whole), "caf|");
}

TEST(StopStrings, NothingOfAStopStringIsEverShown) {
  StopStrings matcher({"</s>", "stop"});
  EXPECT_EQ(matcher.push("go <"), "go ");
  EXPECT_EQ(matcher.push("/"), "");
  EXPECT_EQ(matcher.push("b> st"), "</b> ");
  EXPECT_EQ(matcher.push("o"), "");
  EXPECT_EQ(matcher.push("p it"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

// Few letters, so that stop strings begin, overlap and break off all the time.
TEST(StopStrings, TheCutsMakeNoDifference) {
  int stopped = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const auto word = [&](std::size_t length) {
      std::string out;
      for (std::size_t i = 0; i < length; ++i) out += static_cast<char>('a' + random.below(2 + seed % 2));
      return out;
    };
    std::vector<std::string> stops;
    for (std::uint64_t i = random.below(4); i > 0; --i) stops.push_back(word(1 + random.below(6)));
    const std::string text = word(random.below(40));
    const std::string one_by_one = through(stops, text, [] { return std::size_t{1}; });
    EXPECT_EQ(through(stops, text, [] { return std::size_t{1000}; }), one_by_one);
    EXPECT_EQ(through(stops, text, [&] { return 1 + random.below(5); }), one_by_one);
    const bool contains = std::ranges::any_of(
        stops, [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
    EXPECT_EQ(one_by_one.ends_with('|'), contains);
    if (!contains) {
      EXPECT_EQ(one_by_one, text);
    }
    stopped += contains;
  }
  EXPECT_GT(stopped, 500);
}

TEST(StopStrings, MayBeShown) {
  StopStrings matcher({"END"}, StopStrings::Keep::shown);
  EXPECT_EQ(matcher.push("abc E"), "abc ");
  EXPECT_EQ(matcher.push("ND def"), "END");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.found(), "END");
}

TEST(StopStrings, DoNotEndWhereTheyMayNot) {
  StopStrings matcher({"END", "E", "ENDED"});
  EXPECT_EQ(matcher.push("a END b", false), "a END b");  // three of them, whole
  EXPECT_EQ(matcher.push(" END", false), " ");           // may become the last one
  EXPECT_EQ(matcher.push("x", false), "ENDx");
  EXPECT_EQ(matcher.push("EN", false), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("D!"), "");  // begun before, ended now
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.found(), "END");
  StopStrings other({"E", "ENDED"});
  EXPECT_EQ(other.push("E", false), "");
  EXPECT_EQ(other.push("x"), "Ex");  // the E itself ended too early
  EXPECT_FALSE(other.stopped());
}

TEST(StopStrings, BadOnesAreRefused) {
  expect_refusal({"0 bytes"}, [] { StopStrings({"a", ""}); });
  expect_refusal({"1025 bytes", "1024"}, [] { StopStrings({std::string(1025, 'a')}); });
  expect_refusal({"65 stop strings", "64"}, [] { StopStrings(std::vector<std::string>(65, "a")); });
}

}  // namespace
}  // namespace fourfold::sample
