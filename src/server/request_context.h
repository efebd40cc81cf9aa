// What a request brings along beside its body.
#pragma once

#include <cstdint>
#include <functional>

namespace fourfold::server {

struct RequestContext {
  // Whose key it came with (HttpRequest::tenant); what is kept for one tenant is not shown to another.
  std::uint64_t tenant = 0;
  // Nobody waits for the answer any more: the client has left, or the server ends. Any thread may ask, and
  // long work does now and then. Empty: somebody always waits.
  std::function<bool()> cancelled = {};
};

}  // namespace fourfold::server
