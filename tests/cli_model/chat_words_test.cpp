#include "cli/chat_words.h"

#include <gtest/gtest.h>

namespace fourfold::cli {
namespace {

using Kind = ChatLine::Kind;

TEST(ChatWords, CommandsAndMessages) {
  const auto kind = [](const char* line, bool strict = true) { return read_chat_line(line, strict).kind; };
  EXPECT_EQ(kind(""), Kind::nothing);
  EXPECT_EQ(kind(" \t\n"), Kind::nothing);
  EXPECT_EQ(kind("Hello"), Kind::message);
  EXPECT_EQ(kind("/help"), Kind::help);
  EXPECT_EQ(kind("/new"), Kind::forget);
  EXPECT_EQ(kind("/clear "), Kind::forget);
  EXPECT_EQ(kind("/exit"), Kind::exit);
  EXPECT_EQ(kind("/quit"), Kind::exit);
  EXPECT_EQ(kind("/sav"), Kind::unknown);
  EXPECT_EQ(kind("/sav", false), Kind::message) << "a line of a pipe";
  EXPECT_EQ(kind(" /help"), Kind::message);
  EXPECT_EQ(kind("/usr/bin is a folder"), Kind::message);
  EXPECT_EQ(kind("/"), Kind::message);
  EXPECT_EQ(kind("// a comment"), Kind::message);
  EXPECT_EQ(kind("/new\nand more"), Kind::message) << "a paste";
  EXPECT_EQ(kind("/save this\nand more"), Kind::message);
  EXPECT_EQ(kind("/word and\nmore"), Kind::message);
}

TEST(ChatWords, Arguments) {
  EXPECT_EQ(read_chat_line("/save  my story.md ", true).argument, "my story.md");
  EXPECT_EQ(read_chat_line("/system", true).argument, "");
  EXPECT_EQ(read_chat_line("/system Be brief.", true).argument, "Be brief.");
  EXPECT_EQ(read_chat_line("/system Be brief.\nBe kind.\n", true).argument, "Be brief.\nBe kind.");
  EXPECT_EQ(read_chat_line("/system Be brief.\nBe kind.\n", true).kind, Kind::system);
  EXPECT_EQ(read_chat_line("/sytem x", true).argument, "/sytem");
  EXPECT_EQ(read_chat_line(" said so ", true).argument, " said so ");
}

TEST(ChatWords, SuggestsWhatWasMeant) {
  EXPECT_EQ(unknown_chat_command("/sytem"), "there is no command /sytem; did you mean /system?");
  EXPECT_EQ(unknown_chat_command("/frobnicate"), "there is no command /frobnicate");
}

}  // namespace
}  // namespace fourfold::cli
