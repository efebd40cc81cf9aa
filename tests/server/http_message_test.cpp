#include "server/http_message.h"

#include <gtest/gtest.h>

namespace fourfold::server {
namespace {

TEST(HttpMessage, BothFormsOfATargetAreOnePath) {
  const auto path = [](std::string_view target) {
    const auto parsed = parse_target(target);
    return parsed ? parsed->path + "|" + parsed->query + "|" + parsed->authority : "none";
  };
  EXPECT_EQ(path("/v1/models?a=b?c"), "/v1/models|a=b?c|");
  EXPECT_EQ(path("http://a:80/v1/models"), "/v1/models||a:80");
  EXPECT_EQ(path("https://a?x"), "/|x|a");
  EXPECT_EQ(path("//v1//models"), "//v1//models||");
  for (const char* bad : {"", "*", "v1", "a:80", "ftp://a/b", "http://", "http://a b/c", "http://u@a/",
                          "/a#b", "/a\tb", "/a\x7f"})
    EXPECT_EQ(path(bad), "none") << bad;
}

TEST(HttpMessage, HostsAreNamesOrAddresses) {
  EXPECT_EQ(host_name("LocalHost:8000"), "localhost");
  EXPECT_EQ(host_name("[::1]:8000"), "::1");
  EXPECT_EQ(host_name("127.0.0.1"), "127.0.0.1");
  for (const char* bad :
       {"", ":80", "a:b", "a:1234567", "a/b", "a b", "[::1", "[abc]", "[]", "a@b", "a\\b", "a:80:80"})
    EXPECT_FALSE(host_name(bad)) << bad;
  EXPECT_TRUE(is_address("::1") && is_address("10.0.0.1"));
  EXPECT_FALSE(is_address("a.example"));
}

TEST(HttpMessage, HeadsAndChunks) {
  HttpResponse response{.status = 503, .body = "x"};
  response.headers.emplace_back("Retry-After", "1");
  EXPECT_EQ(response_head(response, {.length = 1, .keep_alive = false}),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 1\r\n"
            "Retry-After: 1\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  std::string out;
  append_chunk(out, "");
  append_chunk(out, std::string(26, 'a'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'a') + "\r\n");
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST(HttpMessage, IdsThatGoIntoHeadsAndLogsArePlain) {
  EXPECT_TRUE(is_plain_id("a-B_9.z:1"));
  for (const char* bad : {"", "a b", "a\r\nSet-Cookie: x", "\xc3\xa9", "a\"b"})
    EXPECT_FALSE(is_plain_id(bad)) << bad;
  EXPECT_FALSE(is_plain_id(std::string(129, 'a')));
}

}  // namespace
}  // namespace fourfold::server
