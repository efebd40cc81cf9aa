// One connection to a server, with TLS where its address says so: bytes out, bytes in, and a time by which
// each must have happened.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "http/proxy.h"
#include "http/url.h"

namespace fourfold::http {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Connects, and greets with TLS: a certificate that the system's do not vouch for is refused. With a proxy
  // (of https addresses alone) it is the proxy that connects; what is sent it cannot read. Throws io.
  Connection(const Url& url, Clock::time_point deadline, const Proxy* proxy = nullptr);
  ~Connection();

  void expire_at(Clock::time_point deadline);  // for what is sent and received from here on
  void send(std::string_view text);
  // Nothing at the end of the stream. Valid until the next call.
  std::string_view receive();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fourfold::http
