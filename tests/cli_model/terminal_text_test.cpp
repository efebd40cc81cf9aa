#include "cli/terminal_text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace fourfold::cli {
namespace {

TEST(TerminalText, ShowIsSafeOnATerminalAndExactElsewhere) {
  std::ostringstream out, err;
  show({out, err}, "a\x1b[2J\n");
  EXPECT_EQ(out.str(), "a\x1b[2J\n");
  out.str("");
  show({out, err, true}, "a\x1b[2J\n");
  EXPECT_EQ(out.str(), "a\xEF\xBF\xBD[2J\n");
}

TEST(TerminalText, ControlCharactersDoNotAct) {
  EXPECT_EQ(terminal_safe("plain, wörld 雪 😀\n\tend"), "plain, wörld 雪 😀\n\tend");
  EXPECT_EQ(terminal_safe("a\x1b[2Jb"), "a\xEF\xBF\xBD[2Jb");
  EXPECT_EQ(terminal_safe("a\rb\x7F"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(terminal_safe("\xC2\x9B"
                          "31m"),
            "\xEF\xBF\xBD"
            "31m")
      << "an escape in one character";
  EXPECT_EQ(terminal_safe("\xC2\xA0"), "\xC2\xA0");
  EXPECT_EQ(terminal_safe(std::string_view("\0", 1)), "\xEF\xBF\xBD");
  EXPECT_EQ(terminal_safe(""), "");
}

}  // namespace
}  // namespace fourfold::cli
