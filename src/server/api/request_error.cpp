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

// What a program reads. Nobody is without one.
std::string_view api_code_of(const Error& error) {
  if (const auto* request = dynamic_cast<const RequestError*>(&error)) return request->api_code();
  if (const auto* refused = dynamic_cast<const engine::NotTaken*>(&error)) return code_of(refused->trouble());
  switch (error.code()) {
    case Code::invalid_request: return "invalid_request";
    case Code::over_capacity: return "overloaded";
    case Code::out_of_memory: return "out_of_memory";
    case Code::device_lost: return "failed";
    default: return "internal";
  }
}

}  // namespace

std::string_view code_of(engine::Trouble trouble) {
  switch (trouble) {
    case engine::Trouble::none: break;
    case engine::Trouble::queue_full: return "queue_full";
    case engine::Trouble::stopping: return "shutting_down";
    case engine::Trouble::away: return "rank_lost";
    case engine::Trouble::fault: return "failed";
    case engine::Trouble::stalled: return "stalled";
  }
  return "internal";
}

}  // namespace api

HttpError error_answer(std::string_view route, const Error& error) {
  const int status = api::status_of(error);
  const auto* request = dynamic_cast<const api::RequestError*>(&error);
  return {status, error_body(error_shape(route), status, api::message_of(error), api::api_code_of(error),
                             request ? request->param() : "")};
}

}  // namespace fourfold::server
