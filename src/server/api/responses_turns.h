// The items of a request to /v1/responses as turns.
#pragma once

#include "server/api/conversation.h"

namespace fourfold::server::api {

struct ResponseTurns {
  std::vector<Turn> turns;
  std::vector<const Json*> tools = {};  // lists that additional_tools items brought; of the request's body
};

// "input", behind the turns that are there already. `required`: it must say something.
void read_input_items(Fields& fields, bool required, ResponseTurns& out);

}  // namespace fourfold::server::api
