#include "server/page/static_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace fourfold::server {
namespace {

TEST(StaticFiles, TheTwoPagesAreThere) {
  for (const std::string_view path : {"/", "/status"}) {
    const auto page = static_file(path);
    ASSERT_TRUE(page) << path;
    EXPECT_EQ(page->content_type, "text/html; charset=utf-8");
    EXPECT_TRUE(page->body.starts_with("<!doctype html>"));
  }
}

TEST(StaticFiles, OnlyExactPathsAreServed) {
  for (const std::string_view path : {"", "//", "/page", "/page/", "/page/../", "/status/", "/chat.html"}) {
    EXPECT_FALSE(static_file(path)) << path;
  }
}

// Everything a page loads is among the files, and nothing is loaded from elsewhere or stands inside the page:
// the security policy would stop it in the browser.
TEST(StaticFiles, PagesLoadOnlyWhatIsHere) {
  std::size_t bytes = 0;
  for (const StaticFile& file : static_files()) {
    bytes += file.body.size();
    EXPECT_EQ(file.etag.size(), 18u) << file.path;
    for (const std::string_view elsewhere : {"src=\"http", "href=\"http", "url(", "@import", "from \"http"}) {
      EXPECT_EQ(file.body.find(elsewhere), std::string_view::npos) << file.path << " has " << elsewhere;
    }
    EXPECT_EQ(file.body.find("innerHTML"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.body.find("<style"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.body.find(" style="), std::string_view::npos) << file.path;
    for (const std::string_view attribute : {"src=\"", "href=\"/"}) {
      std::size_t at = 0;
      while ((at = file.body.find(attribute, at)) != std::string_view::npos) {
        at += attribute.size() - (attribute.back() == '/' ? 1 : 0);
        const std::string_view target = file.body.substr(at, file.body.find('"', at) - at);
        EXPECT_TRUE(static_file(target)) << file.path << " loads " << target;
      }
    }
  }
  EXPECT_LT(bytes, 60u << 10);
}

// What the build made of a file is the file, byte for byte.
TEST(StaticFiles, TheBytesAreTheSources) {
  std::ifstream source(FOURFOLD_SOURCE_DIR "/src/server/page/chat.html", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(source), {}};
  EXPECT_EQ(static_file("/")->body, text);
}

}  // namespace
}  // namespace fourfold::server
