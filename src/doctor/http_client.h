// The least HTTP that asks a server on the same machine or network: one request a connection, answers as they
// arrive. No TLS, no proxies, no redirects.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace fourfold::doctor {

struct Url {
  std::string host;
  std::string port;
  std::string path;  // without a slash at the end: "" or "/base"
};

// http://HOST[:PORT][/PATH]. Throws invalid_request for anything else, https too.
Url parse_url(std::string_view text);

struct HttpRequest {
  std::string method = "GET";
  std::string path = "/";
  std::string body = {};
  std::chrono::milliseconds limit{10'000};  // for all of it
};

// Gets pieces of the body as they arrive; returning false ends the request there.
using BodyPart = std::function<bool(std::string_view part)>;

// The status. Throws io when the server cannot be reached, answers something else than HTTP or takes too
// long.
int http_ask(const Url& url, const HttpRequest& request, const BodyPart& part);

}  // namespace fourfold::doctor
