// Anthropic's /v1/messages.
#include "server/api/request_error.h"
#include "server/api/routes.h"

namespace fourfold::server::api {

std::unique_ptr<Exchange> make_messages_exchange(const Json&, const ServedModel&) {
  throw RequestError(404, "/v1/messages is not served by this build", "");
}

}  // namespace fourfold::server::api
