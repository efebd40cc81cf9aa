// A body and its route become an exchange.
#include "server/api/request_error.h"
#include "server/api/routes.h"
#include "text/jinja/json_value.h"

namespace fourfold::server {
namespace {

std::unique_ptr<Exchange> read_request(std::string_view route, const api::Json& json,
                                       const ServedModel& model, const RequestContext& context,
                                       api::Notes& notes) {
  if (route == "/v1/chat/completions") return api::make_chat_exchange(json, model, context, notes);
  if (route == "/v1/completions") return api::make_completions_exchange(json, model, context, notes);
  if (route == "/v1/responses") return api::make_responses_exchange(json, model, context, notes);
  if (route == "/v1/responses/input_tokens")
    return api::make_input_count_exchange(json, model, context, notes);
  if (route == "/v1/messages") return api::make_messages_exchange(json, model, context, notes);
  if (route == "/v1/messages/count_tokens") return api::make_count_exchange(json, model, context, notes);
  throw api::RequestError(404, fourfold::format("{} runs no model", route), "", "not_found");
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(std::string_view route, std::string_view body,
                                        const ServedModel& model, const RequestContext& context) {
  api::Notes notes(model.strict);
  auto out = read_request(route, text::jinja::parse_json(body, "the body", text::jinja::JsonRules::request),
                          model, context, notes);
  out->notes = std::move(notes);
  return out;
}

}  // namespace fourfold::server
