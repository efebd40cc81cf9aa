#include "http/url.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace fourfold::http {
namespace {

// HOST, HOST:PORT or [ADDRESS]:PORT.
template <class Refuse>
void take_host(std::string_view rest, const char* usual_port, const Refuse& refuse, Url& url) {
  const auto bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const auto colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  url.host = std::string(rest.substr(0, colon));
  if (bracket != std::string_view::npos) url.host = std::string(rest.substr(1, bracket - 1));
  url.port = colon == std::string_view::npos ? usual_port : std::string(rest.substr(colon + 1));
  if (url.host.empty()) refuse("names no host");
  if (url.host.find_first_of(" \t\r\n") != std::string::npos) refuse("has a host that is none");
  if (url.port.empty() || url.port.size() > 5 ||
      url.port.find_first_not_of("0123456789") != std::string::npos)
    refuse("has no port number after the colon");
}

}  // namespace

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
  take_host(rest.substr(0, slash), "80", refuse, url);
  return url;
}

Url parse_link(std::string_view text) {
  const auto refuse = [&](const char* why) {
    fail(Code::invalid_request, "'{}' {}", text.substr(0, 500), why);
  };
  Url url;
  url.tls = text.starts_with("https://");
  if (!url.tls && !text.starts_with("http://")) refuse("is neither an http:// nor an https:// address");
  std::string_view rest = text.substr(url.tls ? 8 : 7);
  rest = rest.substr(0, rest.find('#'));
  const auto slash = std::min(rest.find_first_of("/?"), rest.size());
  url.path = std::string(rest.substr(slash));
  if (!url.path.starts_with('/')) url.path.insert(0, "/");
  const auto unfit = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (std::any_of(url.path.begin(), url.path.end(), unfit)) refuse("has a path that no request can carry");
  rest = rest.substr(0, slash);
  if (rest.find('@') != std::string_view::npos) refuse("has a user name in front of its host");
  take_host(rest, url.tls ? "443" : "80", refuse, url);
  return url;
}

Url redirected(const Url& from, std::string_view location) {
  if (location.starts_with("//")) return parse_link((from.tls ? "https:" : "http:") + std::string(location));
  if (location.find("://") != std::string_view::npos && location.find("://") < location.find_first_of("/?"))
    return parse_link(location);
  Url base = from;
  base.path.clear();
  std::string path = from.path.substr(0, from.path.find('?'));
  path.resize(path.rfind('/') + 1);
  return parse_link(link_text(base) + (location.starts_with('/') ? "" : path) + std::string(location));
}

bool same_origin(const Url& a, const Url& b) {
  const auto same_letter = [](char x, char y) { return std::tolower(x) == std::tolower(y); };
  return a.tls == b.tls && a.port == b.port &&
         std::equal(a.host.begin(), a.host.end(), b.host.begin(), b.host.end(), same_letter);
}

std::string link_text(const Url& url) {
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  const bool usual = url.port == (url.tls ? "443" : "80");
  return (url.tls ? "https://" : "http://") + host + (usual ? "" : ":" + url.port) + url.path;
}

}  // namespace fourfold::http
