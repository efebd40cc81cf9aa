#include "base/json_escape.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fourfold {
namespace {

// RFC 8259, section 7: quotation mark, reverse solidus and U+0000 to U+001F must be escaped, nothing else.
TEST(JsonEscape, IsNeededForWhatTheStandardNames) {
  for (char32_t code = 0; code < 0x110000; ++code)
    ASSERT_EQ(needs_json_escape(code), code <= 0x1F || code == 0x22 || code == 0x5C)
        << static_cast<std::uint32_t>(code);
}

TEST(JsonEscape, IsOneLetterWhereJsonHasOne) {
  EXPECT_EQ(json_escape('"'), "\\\"");
  EXPECT_EQ(json_escape('\\'), "\\\\");
  EXPECT_EQ(json_escape('\b'), "\\b");
  EXPECT_EQ(json_escape('\f'), "\\f");
  EXPECT_EQ(json_escape('\n'), "\\n");
  EXPECT_EQ(json_escape('\r'), "\\r");
  EXPECT_EQ(json_escape('\t'), "\\t");
  EXPECT_EQ(json_escape(0), "\\u0000");
  EXPECT_EQ(json_escape(0x0B), "\\u000b");
  EXPECT_EQ(json_escape(0x1F), "\\u001f");
}

}  // namespace
}  // namespace fourfold
