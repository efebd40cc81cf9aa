// Where a server is.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::http {

struct Url {
  std::string host;
  std::string port;
  std::string path;  // without a slash at the end: "" or "/base"; of a link all of it, with its query
  bool tls = false;
};

// http://HOST[:PORT][/PATH]; a /v1 at the end is left out. Throws invalid_request for anything else, https
// too.
Url parse_url(std::string_view text);

// http:// or https://, path and query as they are (a fragment is left out). Throws invalid_request.
Url parse_link(std::string_view text);

// Where a redirect leads: `location` may be a whole link, //host/path, /path or a path beside the one that
// was asked for. Throws as parse_link.
Url redirected(const Url& from, std::string_view location);

// The same scheme, host and port: what is meant for one may be told to the other.
bool same_origin(const Url& a, const Url& b);

// "https://host:443/path", with the port where it is not the scheme's own.
std::string link_text(const Url& url);

}  // namespace fourfold::http
