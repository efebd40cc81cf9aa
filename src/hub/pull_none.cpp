// In place of pull.cpp and what it needs, in a build without OpenSSL.
#include "base/error.h"
#include "hub/pull.h"

namespace fourfold::hub {

Pulled pull(const checkpoint::HubName& hub, const Settings&, const PullListener&) {
  fail_with_hint(
      Code::unsupported_op,
      "Build with OpenSSL 3 (Debian: libssl-dev), or fetch it with the hub's own tools: hf download.",
      "{} is to be fetched, and this program was built without TLS", hub.text());
}

bool can_pull() { return false; }

}  // namespace fourfold::hub
