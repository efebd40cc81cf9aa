#include "text/traced_text.h"

#include <gtest/gtest.h>

#include <random>

namespace fourfold::text {
namespace {

// Every byte with its origin, the slow way.
struct Bytes {
  std::string bytes, origins;  // 'o' own, 'f' foreign
};

Bytes spelled(const TracedText& text) {
  Bytes out{text.bytes(), std::string(text.size(), 'f')};
  std::size_t last = 0;
  for (const text::Run& run : text.own_runs()) {
    EXPECT_LT(run.begin, run.end);
    EXPECT_TRUE(run.begin > last || (run.begin == 0 && last == 0)) << "runs are apart";
    last = run.end;
    for (std::size_t i = run.begin; i < run.end; ++i) out.origins[i] = 'o';
  }
  return out;
}

TEST(TracedText, KeepsTheOriginOfEveryByte) {
  std::mt19937 dice(7);
  for (int round = 0; round < 2000; ++round) {
    TracedText text;
    Bytes slow;
    for (int step = 0; step < 8; ++step) {
      const std::string piece(dice() % 4, static_cast<char>('a' + dice() % 26));
      const std::size_t begin = text.size() == 0 ? 0 : dice() % (text.size() + 1);
      const std::size_t end = begin + (text.size() == begin ? 0 : dice() % (text.size() - begin + 1));
      const TracedText before = text;
      switch (dice() % 6) {
        case 0:
          text.append(piece);
          slow.bytes += piece, slow.origins.append(piece.size(), 'f');
          break;
        case 1:
          text.append_own(piece);
          slow.bytes += piece, slow.origins.append(piece.size(), 'o');
          break;
        case 2:
          text.append_slice(before, begin, end);
          slow.bytes += slow.bytes.substr(begin, end - begin);
          slow.origins += slow.origins.substr(begin, end - begin);
          break;
        case 3: {
          const bool own = slow.origins.substr(begin, end - begin).find('f') == std::string::npos;
          EXPECT_EQ(text.is_own(begin, end), own);
          text.append_for(piece, before, begin, end);
          slow.bytes += piece;
          slow.origins.append(piece.size(), own && !before.own_runs().empty() ? 'o' : 'f');
          break;
        }
        case 4:
          text.cut(end);
          slow.bytes.resize(end), slow.origins.resize(end);
          break;
        default:
          text = before.slice(std::string_view(before.bytes()).substr(begin, end - begin));
          slow = {slow.bytes.substr(begin, end - begin), slow.origins.substr(begin, end - begin)};
      }
      ASSERT_EQ(spelled(text).bytes, slow.bytes);
      ASSERT_EQ(spelled(text).origins, slow.origins);
    }
  }
}

TEST(TracedText, NobodyVouchesForPlainText) {
  EXPECT_TRUE(TracedText("abc").own_runs().empty());
  EXPECT_EQ(TracedText::own("abc").own_runs(), (std::vector<text::Run>{{0, 3}}));
  EXPECT_TRUE(TracedText::own("").own_runs().empty());
}

}  // namespace
}  // namespace fourfold::text
