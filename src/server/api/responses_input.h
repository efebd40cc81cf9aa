// What a request to /v1/responses says, in the words of the other protocols.
#pragma once

#include <optional>
#include <string>

#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

struct ResponsesRequest {
  Plan plan;
  std::uint64_t tenant = 0;
  // Whether the response is to be kept, and the conversation it is then kept with: what came before the
  // answer, without instructions, which hold for one request.
  bool store = false;
  std::vector<Turn> turns = {};
  // What the answer repeats.
  std::optional<std::string> instructions = {}, effort = {}, verbosity = {}, previous = {};
  std::optional<Json> metadata = {}, tools = {}, tool_choice = {}, format = {};
};

ResponsesRequest read_responses(const Json& body, const ServedModel& model, const RequestContext& context,
                                Notes& notes, PromptUse use);

}  // namespace fourfold::server::api
