// The proxy through which the environment wants https addresses to be asked: HTTPS_PROXY or ALL_PROXY, and
// NO_PROXY for the hosts that are asked directly. The names are looked at in small letters first, as curl
// and the hub's own tools do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "http/url.h"

namespace fourfold::http {

struct Proxy {
  std::string host;
  std::string port;
  std::string user;  // "name:password", decoded; empty: nobody
};

struct Proxies {
  std::optional<Proxy> https;
  std::vector<std::string> direct;  // NO_PROXY: hosts and domains; "*" is all

  // Nothing: the address is asked directly, as all that is not https.
  const Proxy* way_to(const Url& url) const;
};

// Throws invalid_request for a proxy that is no http:// address; passwords are not shown.
Proxies proxies_from_environment();

}  // namespace fourfold::http
