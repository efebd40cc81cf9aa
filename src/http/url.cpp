#include "http/url.h"

#include <algorithm>

#include "base/error.h"

namespace fourfold::http {

Url parse_url(std::string_view text) {
  constexpr std::string_view scheme = "http://";
  const auto refuse = [&](const char* why) {
    fail_with_hint(Code::invalid_request, "For example: http://127.0.0.1:8000", "'{}' {}", text, why);
  };
  if (text.starts_with("https://"))
    refuse("is https; servers are measured over plain http, so that no time of TLS is among theirs");
  if (!text.starts_with(scheme)) refuse("is no http:// address");
  std::string_view rest = text.substr(scheme.size());
  Url url;
  const auto slash = std::min(rest.find('/'), rest.size());
  url.path = std::string(rest.substr(slash));
  if (url.path.find_first_of(" \t\r\n?#") != std::string::npos)
    refuse("has a path that no request can carry");
  while (url.path.ends_with('/')) url.path.pop_back();
  // People paste the base of an OpenAI client, which ends in /v1.
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  rest = rest.substr(0, slash);
  const auto bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const auto colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = std::string(rest.substr(0, colon));
  if (bracket != std::string_view::npos) url.host = std::string(rest.substr(1, bracket - 1));
  url.port = colon == std::string_view::npos ? "80" : std::string(rest.substr(colon + 1));
  if (url.host.empty()) refuse("names no host");
  if (url.host.find_first_of(" \t\r\n") != std::string::npos) refuse("has a host that is none");
  if (url.port.empty() || url.port.size() > 5 ||
      url.port.find_first_not_of("0123456789") != std::string::npos)
    refuse("has no port number after the colon");
  return url;
}

}  // namespace fourfold::http
