// Where events go: tcp://*:5557 is listened on, tcp://host:5557 is connected to, as ZeroMQ's users write it.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::events {

struct Endpoint {
  std::string host, port;
  bool listens = false;

  // Listening, where the host is * or has a :: in it, or an @ stands before it all. Throws invalid_request
  // with the option's name.
  static Endpoint parse(std::string_view text, std::string_view option);
};

}  // namespace fourfold::events
