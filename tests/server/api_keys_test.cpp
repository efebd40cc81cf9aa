#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "tests/checkpoint/support.h"

namespace fourfold::server {
namespace {

TEST(ApiKeys, ComparesAllOfAKey) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "Abc", "abcabc", "abca"})
    EXPECT_FALSE(equal_in_constant_time(other, "abc")) << other;
  EXPECT_FALSE(equal_in_constant_time("", "abc"));
}

TEST(ApiKeys, FilesAreReadAgainAndTenantsStay) {
  const checkpoint::TempFolder folder;
  folder.write("keys", "# ours\none\r\n\ntwo\n");
  const auto file = folder.path() / "keys";
  ApiKeys keys({"given"}, {file});
  EXPECT_EQ(keys.count(), 3u);
  const auto one = keys.tenant("one"), given = keys.tenant("given");
  ASSERT_TRUE(one && given);
  EXPECT_NE(*one, *given);
  EXPECT_FALSE(keys.tenant("# ours") || keys.tenant("") || keys.tenant("three"));
  EXPECT_EQ(keys.reload_changed(), "");

  folder.write("keys", "three\none\n");
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::seconds(2));
  EXPECT_EQ(keys.reload_changed(), "");
  EXPECT_FALSE(keys.tenant("two"));
  EXPECT_TRUE(keys.tenant("three"));
  EXPECT_EQ(keys.tenant("one"), one);

  // A file that is no good now takes nobody's key away, and is not shown in the message.
  folder.write("keys", "bad secret with spaces\n");
  const std::string problem = keys.reload_changed();
  EXPECT_NE(problem.find("stay as they were"), std::string::npos) << problem;
  EXPECT_EQ(problem.find("secret"), std::string::npos);
  EXPECT_TRUE(keys.tenant("three"));
  EXPECT_EQ(keys.reload_changed(), "");
  std::filesystem::remove(file);
  EXPECT_NE(keys.reload_changed().find("is gone; its keys stay as they were"), std::string::npos);
  EXPECT_EQ(keys.reload_changed(), "") << "said once";
  EXPECT_TRUE(keys.tenant("three"));
}

// Emptying the file takes its keys away, and never opens the server.
TEST(ApiKeys, AnEmptiedFileLetsNobodyIn) {
  const checkpoint::TempFolder folder;
  folder.write("keys", "one\ntwo\n");
  const auto file = folder.path() / "keys";
  ApiKeys keys({}, {file});
  const auto one = keys.tenant("one");
  folder.write("keys", "");
  EXPECT_EQ(keys.reload_changed(), "");
  EXPECT_TRUE(keys.tenant("one")) << "an editor may be in the middle of writing it";
  EXPECT_NE(keys.reload_changed().find("has no key any more"), std::string::npos);
  EXPECT_FALSE(keys.tenant("one") || keys.tenant("two") || keys.tenant(""));
  EXPECT_EQ(keys.count(), 0u);
  EXPECT_TRUE(keys.any()) << "a key is needed as before";
  EXPECT_EQ(keys.reload_changed(), "") << "said once";
  folder.write("keys", "# none\n");
  keys.reload_changed();
  EXPECT_FALSE(keys.tenant("one"));
  folder.write("keys", "one\nthree\n");
  EXPECT_EQ(keys.reload_changed(), "");
  EXPECT_EQ(keys.tenant("one"), one) << "the same tenant";
  EXPECT_TRUE(keys.tenant("three"));
  // Written in two steps: empty at one look, whole at the next.
  folder.write("keys", "");
  keys.reload_changed();
  folder.write("keys", "three\nfour\n");
  EXPECT_EQ(keys.reload_changed(), "");
  EXPECT_TRUE(keys.tenant("three") && keys.tenant("four"));
}

TEST(ApiKeys, APipeInTheFilesPlaceIsRefused) {
  const checkpoint::TempFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(ApiKeys({}, {pipe}), Error);
}

TEST(ApiKeys, RefusesKeysNobodyCouldSend) {
  const checkpoint::TempFolder folder;
  folder.write("empty", "# nothing\n");
  EXPECT_THROW(ApiKeys({""}, {}), Error);
  EXPECT_THROW(ApiKeys({"a b"}, {}), Error);
  EXPECT_THROW(ApiKeys({"caf\xc3\xa9"}, {}), Error);
  EXPECT_THROW(ApiKeys({std::string(513, 'a')}, {}), Error);
  EXPECT_THROW(ApiKeys({}, {folder.path() / "empty"}), Error);
  EXPECT_THROW(ApiKeys({}, {folder.path() / "missing"}), Error);
}

}  // namespace
}  // namespace fourfold::server
