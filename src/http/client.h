// HTTP that asks a server on the same machine or network, by Boost.Beast: one request a connection, answers
// as they arrive. No TLS, no proxies, no redirects.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "http/url.h"

namespace fourfold::http {

struct Request {
  std::string method = "GET";
  std::string path = "/";
  std::string body = {};
  std::string key = {};                     // sent as a bearer token
  std::chrono::milliseconds limit{10'000};  // for all of it
};

// The bytes to send; the connection is closed after the answer.
std::string request_text(const Url& url, const Request& request);

// Gets pieces of the body as they arrive; returning false ends the request there.
using BodyPart = std::function<bool(std::string_view part)>;

// The status. Throws io when the server cannot be reached, answers something else than HTTP, cuts its answer
// off or takes too long.
int ask(const Url& url, const Request& request, const BodyPart& part);

struct Answer {
  int status = 0;
  std::string body;
};

// As ask, with all of the body; throws io for one of more than 64 MB.
Answer ask(const Url& url, const Request& request);

}  // namespace fourfold::http
