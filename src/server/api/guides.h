// Answers that must have a form: what a request says of it, and the guide that holds the model to it.
#pragma once

#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

struct AnswerForm {
  enum class Kind { free, json_object, json_schema, regex };
  Kind kind = Kind::free;
  std::string text;   // the schema's JSON or the pattern
  std::string field;  // where it stood in the request
};

// response_format, and vLLM's guided_json, guided_regex and structured_outputs.
AnswerForm read_form(Fields& fields);
// {"type": "text" | "json_object" | "json_schema", ...}; the schema stands beside the type (Responses,
// Anthropic) or in "json_schema" (chat).
AnswerForm read_format(Fields& format);

// None for free text. Calls that tool_choice demands are a form too.
MakeGuide make_guide(const AnswerForm& form, const Tools& tools, const Generation& generation,
                     const ServedModel& model, const RequestContext& context);

}  // namespace fourfold::server::api
