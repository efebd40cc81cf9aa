// /v1/responses.
#include "server/api/request_error.h"
#include "server/api/routes.h"

namespace fourfold::server::api {

std::unique_ptr<Exchange> make_responses_exchange(const Json&, const ServedModel&) {
  throw RequestError(404, "/v1/responses is not served by this build", "");
}

}  // namespace fourfold::server::api
