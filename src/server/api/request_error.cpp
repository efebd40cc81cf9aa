#include "server/api/request_error.h"

#include "server/exchange.h"
#include "server/http_message.h"

namespace fourfold::server {
namespace api {
namespace {

int status_of(const Error& error) {
  if (const auto* request = dynamic_cast<const RequestError*>(&error)) return request->status();
  switch (error.code()) {
    case Code::invalid_request: return 400;
    case Code::over_capacity: return 503;
    case Code::device_lost: return 503;
    case Code::out_of_memory: return 503;
    default: return 500;
  }
}

std::string message_of(const Error& error) {
  std::string out = error.what();
  if (!error.hint().empty()) out += ". " + error.hint();
  return out;
}

}  // namespace
}  // namespace api

HttpError error_answer(std::string_view route, const Error& error) {
  const int status = api::status_of(error);
  const auto* request = dynamic_cast<const api::RequestError*>(&error);
  return {status, error_body(error_shape(route), status, api::message_of(error),
                             request ? request->api_code() : "", request ? request->param() : "")};
}

}  // namespace fourfold::server
