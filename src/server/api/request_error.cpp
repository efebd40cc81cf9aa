#include "server/api/request_error.h"

#include "base/json_writer.h"
#include "server/exchange.h"

namespace fourfold::server {
namespace api {
namespace {

void optional_member(JsonWriter& json, std::string_view name, std::string_view text) {
  json.key(name);
  if (text.empty()) {
    json.value(nullptr);
  } else {
    json.value(text);
  }
}

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

std::string_view openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string_view anthropic_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 413) return "request_too_large";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  return status < 500 ? "invalid_request_error" : "api_error";
}

std::string message_of(const Error& error) {
  std::string out = error.what();
  if (!error.hint().empty()) out += ". " + error.hint();
  return out;
}

}  // namespace

std::string openai_error(std::string_view message, std::string_view type, std::string_view param,
                         std::string_view api_code) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.member("message", message).member("type", type);
  optional_member(json, "param", param);
  optional_member(json, "code", api_code);
  json.end_object().end_object();
  return json.finish();
}

std::string anthropic_error(std::string_view message, std::string_view type) {
  JsonWriter json;
  json.begin_object().member("type", "error").key("error").begin_object();
  json.member("type", type).member("message", message);
  json.end_object().end_object();
  return json.finish();
}

}  // namespace api

HttpError error_answer(std::string_view route, const Error& error) {
  const int status = api::status_of(error);
  const std::string message = api::message_of(error);
  if (route.starts_with("/v1/messages"))
    return {status, api::anthropic_error(message, api::anthropic_type(status))};
  const auto* request = dynamic_cast<const api::RequestError*>(&error);
  return {status, api::openai_error(message, api::openai_type(status), request ? request->param() : "",
                                    request ? request->api_code() : "")};
}

}  // namespace fourfold::server
