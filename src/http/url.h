// Where a server is.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::http {

struct Url {
  std::string host;
  std::string port;
  std::string path;  // without a slash at the end: "" or "/base"
};

// http://HOST[:PORT][/PATH]; a /v1 at the end is left out. Throws invalid_request for anything else, https
// too.
Url parse_url(std::string_view text);

}  // namespace fourfold::http
