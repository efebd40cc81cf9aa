// Answers that must have a form: JSON, a JSON schema, a regular expression, calls of tools. A form is
// compiled once (compile_*), met with a tokenizer's vocabulary (Masks) and then guides any number of answers:
// a guide says which tokens may come next, so that the finished answer has the form whatever the model
// prefers.
//
// docs/structured.md says what is supported. What is not is an invalid_request that names it, never ignored.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/budget.h"
#include "constrain/grammar.h"
#include "constrain/masks.h"
#include "constrain/vocabulary.h"
#include "engine/token_guide.h"
#include "text/tool_format.h"

namespace fourfold::constrain {

struct JsonOptions {
  bool blanks = true;           // spaces and line breaks between the tokens of JSON
  bool closed_objects = false;  // objects have no members the schema does not speak of
};

// Any JSON object.
std::shared_ptr<const Grammar> compile_json_object(const Limits& limits = {},
                                                   const JsonOptions& options = {});
// Messages name the keyword and its JSON pointer in the schema.
std::shared_ptr<const Grammar> compile_json_schema(std::string_view schema_json, const Limits& limits = {},
                                                   const JsonOptions& options = {});
// The whole answer matches.
std::shared_ptr<const Grammar> compile_regex(std::string_view pattern, const Limits& limits = {});
// The answer is one of these.
std::shared_ptr<const Grammar> compile_choice(std::span<const std::string> choices,
                                              const Limits& limits = {});

// One or more calls of tools. tools_json: the request's list, [{"type": "function", "function": {"name",
// "parameters"}}, ...]; `name`: the only one that may be called. `several`: more than one call may come.
struct ToolCallsOptions {
  text::CallFormat format = text::CallFormat::tagged;  // the template's
  std::optional<std::string> name = {};
  bool several = true;
};
std::shared_ptr<const Grammar> compile_tool_calls(std::string_view tools_json,
                                                  const ToolCallsOptions& options = {},
                                                  const Limits& limits = {});

// Where in the answer the form begins.
struct GuideStart {
  // Behind this token (</think>); until then everything but the end is allowed.
  std::optional<TokenId> after = {};
  // Not allowed until then (<tool_call>).
  std::vector<TokenId> not_before = {};
  // Up to two newlines may stand before the form's text.
  bool newlines = false;
  // Where answers are messages with headers: the form begins behind `header`, which comes at once, or after a
  // thought. That is `thought`, then anything up to `after`, then `header_again`.
  std::vector<TokenId> header = {}, thought = {}, header_again = {};
};

std::unique_ptr<engine::TokenGuide> make_guide(std::shared_ptr<const Masks> masks, GuideStart start = {});
// For a form that guides one answer only.
std::unique_ptr<engine::TokenGuide> make_guide(std::shared_ptr<const Vocabulary> vocabulary,
                                               std::shared_ptr<const Grammar> grammar, GuideStart start = {});

}  // namespace fourfold::constrain
