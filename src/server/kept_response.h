// GET and DELETE of a response that is kept (api/response_store.h).
#pragma once

#include "server/http_message.h"
#include "server/served_model.h"

namespace fourfold::server {

// The path is `prefix` and the response's id. 404 for what is not kept, or belongs to another tenant.
HttpResponse kept_response(const HttpRequest& request, std::string_view prefix, const ServedModel& model);

}  // namespace fourfold::server
