// What a request to /v1/responses says, in the words of the other protocols.
#pragma once

#include <optional>
#include <string>

#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

struct ResponsesRequest {
  Plan plan;
  // What the answer repeats.
  std::optional<std::string> instructions, effort;
  std::optional<Json> metadata, tools, tool_choice, format;
};

ResponsesRequest read_responses(const Json& body, const ServedModel& model, const RequestContext& context,
                                Notes& notes);

}  // namespace fourfold::server::api
