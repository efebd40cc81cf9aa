// The tools of a request to /v1/responses.
#pragma once

#include "server/api/tools.h"

namespace fourfold::server::api {

// "tools", "tool_choice" and "parallel_tool_calls"; `more` are lists that items of the conversation brought.
// Functions of a namespace are offered as "space.name"; what this server does not run is left out, with a
// note.
Tools read_response_tools(Fields& fields, const std::vector<const Json*>& more,
                          std::optional<Json>& for_template);

// The namespace of what the model calls, which is empty without one, and the function's own name.
std::pair<std::string, std::string> split_name(const std::string& name, const Tools& tools);

}  // namespace fourfold::server::api
