// Agreement with the package over fuzzed strings is in tokenizer_test (qwen2, qwen35 and qwen3 normalise).
#include "text/nfc.h"

#include <gtest/gtest.h>

#include "tests/text/fuzz_strings.h"

namespace fourfold::text {
namespace {

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(to_nfc("a\u0308\u0323"), "\u1ea1\u0308");  // the dot below composes first
  EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c");   // Hangul by rule
  EXPECT_EQ(to_nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(to_nfc("\u212b"), "\u00c5");        // a single character for another
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(to_nfc("x\u0301\u0301"), "x\u0301\u0301");
}

TEST(Nfc, LeavesTheNewestCharactersAloneAsThePackageDoes) {
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // composes since Unicode 13 only
}

TEST(Nfc, IsStableAndAgreesWithItsQuickCheck) {
  const auto pieces = load_fuzz_pieces();
  int quick = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::string text = fuzz_string(pieces, 41, i);
    const std::string once = to_nfc(text);
    ASSERT_EQ(to_nfc(once), once);
    if (is_surely_nfc(text)) {
      ++quick;
      ASSERT_EQ(once, text);
    }
  }
  EXPECT_GT(quick, 1'000);
}

}  // namespace
}  // namespace fourfold::text
