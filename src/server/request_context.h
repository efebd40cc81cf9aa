// What a request brings along beside its body.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fourfold::server {

struct RequestContext {
  // Whose key it came with (HttpRequest::tenant); what is kept for one tenant is not shown to another.
  std::uint64_t tenant = 0;
  std::string client = {};  // whose share it takes of what all clients have (HttpRequest::client)
  // Nobody waits for the answer any more: the client has left, or the server ends. Any thread may ask, and
  // long work does now and then (base/cancel.h for what knows nothing of requests). Empty: somebody always
  // waits.
  std::function<bool()> cancelled = {};
};

}  // namespace fourfold::server
