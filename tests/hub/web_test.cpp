#include "hub/web.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "hub/settings.h"

namespace fourfold::hub {
namespace {

using std::chrono::seconds;

TEST(Web, RetryAfterIsSecondsOrADate) {
  EXPECT_EQ(parse_retry_after("30", 0), seconds(30));
  EXPECT_EQ(parse_retry_after("0", 0), seconds(0));
  EXPECT_EQ(parse_retry_after("Tue, 17 Nov 2026 11:00:30 GMT", 1794913200), seconds(30));
  EXPECT_EQ(parse_retry_after("Tue, 17 Nov 2026 11:00:30 GMT", 1794913300), seconds(0));
  EXPECT_LT(*parse_retry_after("9223372036854775807", 0), std::chrono::hours(1000));  // in any unit
  for (const char* text : {"", "-1", "soon", "30 s", "Tue, 17 Nov 2026"})
    EXPECT_EQ(parse_retry_after(text, 0), std::nullopt) << text;
}

TEST(Proxies, HostsAndDomainsAreAskedDirectly) {
  http::Proxies proxies{.https = http::Proxy{"proxy", "3128", ""}, .direct = {"a.org", ".b.org", "*.c.org"}};
  const auto goes_through = [&](const char* link) {
    return proxies.way_to(http::parse_link(link)) != nullptr;
  };
  for (const char* link : {"https://a.org/x", "https://x.a.org", "https://X.B.org", "https://b.org",
                           "https://x.c.org", "http://d.org"})
    EXPECT_FALSE(goes_through(link)) << link;
  for (const char* link : {"https://d.org", "https://xa.org", "https://a.org.d"})
    EXPECT_TRUE(goes_through(link)) << link;
  proxies.direct = {"*"};
  EXPECT_FALSE(goes_through("https://d.org"));
}

TEST(Web, PausesGrow) {
  EXPECT_EQ(pause_after(1), std::chrono::milliseconds(250));
  for (int failed = 1; failed < Question{}.attempts; ++failed)
    EXPECT_EQ(pause_after(failed + 1), 2 * pause_after(failed));
  EXPECT_EQ(pause_after(1000), pause_after(8));
}

TEST(Settings, NoTokenIsSentOverHttp) {
  ::setenv("HF_TOKEN", "hf_of_a_test", 1);
  for (const auto& [endpoint, sent] : {std::pair{"https://hub.example", true},
                                       {"http://hub.example", false},
                                       {"http://127.0.0.1:80", true},
                                       {"http://127.evil.example", false}}) {
    ::setenv("HF_ENDPOINT", endpoint, 1);
    const Settings settings = settings_from_environment();
    EXPECT_EQ(settings.token, sent ? "hf_of_a_test" : "") << endpoint;
    EXPECT_EQ(settings.token_is_kept, !sent) << endpoint;
  }
  ::unsetenv("HF_ENDPOINT");
  ::unsetenv("HF_TOKEN");
}

TEST(Links, AreTakenApartAndPutTogether) {
  const http::Url link = http::parse_link("https://hub.example/a/b?c=%2F#d");
  EXPECT_TRUE(link.tls);
  EXPECT_EQ(link.host, "hub.example");
  EXPECT_EQ(link.port, "443");
  EXPECT_EQ(link.path, "/a/b?c=%2F");
  for (const char* text : {"https://h/", "http://h:81/x?y", "http://[::1]:8/z", "https://h:80/"})
    EXPECT_EQ(http::link_text(http::parse_link(text)), text);
  EXPECT_EQ(http::parse_link("http://h?x").path, "/?x");
  for (const char* text : {"ftp://h/", "h/x", "https://", "https://h:x/", "https://user@h/", "http://h/a b",
                           "http://h/a\r\nHost: x"})
    EXPECT_THROW(http::parse_link(text), Error) << text;
}

TEST(Links, RedirectsLeadWhereTheySay) {
  const http::Url from = http::parse_link("https://hub.example/a/b/c?d");
  const auto to = [&](const char* location) { return http::link_text(http::redirected(from, location)); };
  EXPECT_EQ(to("https://cdn.example/x?y=http://z"), "https://cdn.example/x?y=http://z");
  EXPECT_EQ(to("//cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(to("/x?u=http://y"), "https://hub.example/x?u=http://y");
  EXPECT_EQ(to("x"), "https://hub.example/a/b/x");
  EXPECT_THROW(to("file:///etc/passwd"), Error);
}

TEST(Links, AnotherHostPortOrSchemeIsAnotherOrigin) {
  const auto same = [](const char* a, const char* b) {
    return http::same_origin(http::parse_link(a), http::parse_link(b));
  };
  EXPECT_TRUE(same("https://Hub.example/a", "https://hub.example:443/b"));
  EXPECT_FALSE(same("https://hub.example/", "http://hub.example:443/"));
  EXPECT_FALSE(same("https://hub.example/", "https://hub.example:444/"));
  EXPECT_FALSE(same("https://hub.example/", "https://cdn.hub.example/"));
  EXPECT_FALSE(same("https://hub.example/", "https://hub.example.evil/"));
}

}  // namespace
}  // namespace fourfold::hub
