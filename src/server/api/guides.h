// Answers that must have a form: what a request says of it, and the guide that holds the model to it.
#pragma once

#include "constrain/guide.h"
#include "server/api/answer_exchange.h"

namespace fourfold::server::api {

struct AnswerForm {
  enum class Kind { free, json_object, json_schema, regex, choice };
  Kind kind = Kind::free;
  std::string text = {};   // the schema's JSON or the pattern
  std::string field = {};  // where it stood in the request
  std::vector<std::string> choices = {};
  constrain::JsonOptions json = {};
};

// response_format, vLLM's guided_* and structured_outputs, and what SGLang and llama.cpp call json_schema and
// regex.
AnswerForm read_form(Fields& fields);
// {"type": "text" | "json_object" | "json_schema" | "regex", ...}; the schema stands beside the type
// (Responses, Anthropic) or in "json_schema" (chat).
AnswerForm read_format(Fields& format);

// None for free text. Calls that tool_choice demands are a form too. What a schema says without effect is
// noted.
MakeGuide make_guide(const AnswerForm& form, const Tools& tools, const Generation& generation,
                     const ServedModel& model, const RequestContext& context, Notes& notes);

}  // namespace fourfold::server::api
