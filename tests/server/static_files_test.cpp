#include "server/page/static_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

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
    if (!file.content_type.ends_with("; charset=utf-8")) continue;
    for (const std::string_view elsewhere :
         {"src=\"http", "href=\"http", "@import", "from \"http", "import(\"http"}) {
      EXPECT_EQ(file.body.find(elsewhere), std::string_view::npos) << file.path << " has " << elsewhere;
    }
    EXPECT_EQ(file.body.find("innerHTML"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.body.find("<style"), std::string_view::npos) << file.path;
    EXPECT_EQ(file.body.find(" style="), std::string_view::npos) << file.path;
    for (const std::string_view attribute : {"src=\"", "href=\"/", "from \"/", "url(\""}) {
      std::size_t at = 0;
      while ((at = file.body.find(attribute, at)) != std::string_view::npos) {
        at += attribute.size() - (attribute.back() == '/' ? 1 : 0);
        const std::string_view target = file.body.substr(at, file.body.find('"', at) - at);
        EXPECT_TRUE(static_file(target)) << file.path << " loads " << target;
      }
    }
  }
  EXPECT_LT(bytes, 400u << 10);  // of which the font of formulae has 120
}

// What the build made of a file is the file, byte for byte.
TEST(StaticFiles, TheBytesAreTheSources) {
  for (const auto& [path, name] :
       {std::pair{"/", "chat.html"}, {"/page/math/math.woff2", "math/math.woff2"}}) {
    std::ifstream source(std::string(FOURFOLD_SOURCE_DIR "/src/server/page/") + name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(source), {}};
    ASSERT_FALSE(text.empty()) << name;
    EXPECT_EQ(static_file(path)->body, text) << name;
  }
}

// Modules are asked for at once: one that is found only when another has been read costs a way to the server
// and back.
TEST(StaticFiles, ThePageNamesItsModules) {
  const std::string_view page = static_file("/")->body;
  for (const StaticFile& file : static_files()) {
    if (!file.content_type.starts_with("text/javascript") || file.path == "/page/status.js") continue;
    EXPECT_NE(page.find('"' + std::string(file.path) + '"'), std::string_view::npos) << file.path;
  }
}

// The licence of the font asks for its text to go where the font goes.
TEST(StaticFiles, TheFontsLicenceIsThere) {
  EXPECT_TRUE(static_file("/page/math/math.woff2")->body.starts_with("wOF2"));
  EXPECT_NE(static_file("/page/math/font-license.txt")->body.find("GUST Font License"),
            std::string_view::npos);
}

}  // namespace
}  // namespace fourfold::server
