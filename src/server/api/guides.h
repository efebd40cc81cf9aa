// Answers that must have a form: what a request says of it, and the guide that holds the model to it.
#pragma once

#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

// response_format, guided_json, guided_regex, structured_outputs, and calls that tool_choice demands.
MakeGuide read_guide(Fields& fields, const Tools& tools, const Generation& generation,
                     const ServedModel& model);

}  // namespace fourfold::server::api
