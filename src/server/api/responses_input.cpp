#include "server/api/responses_input.h"

#include "base/sampling_limits.h"
#include "server/api/guides.h"
#include "server/api/request_error.h"
#include "server/api/response_store.h"
#include "server/api/responses_tools.h"
#include "server/api/responses_turns.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

// The conversation that the request goes on with.
void read_previous(Fields& fields, const ServedModel& model, const RequestContext& context,
                   ResponsesRequest& out, std::vector<Turn>& turns) {
  fields.refuse_any({"conversation", "prompt"});
  fields.only_false({"background"});
  out.tenant = context.tenant;
  out.store = fields.boolean("store").value_or(true) && model.responses != nullptr;
  out.previous = fields.text("previous_response_id");
  if (!out.previous) return;
  const std::string field = "previous_response_id";
  if (!model.responses)
    refuse(field,
           "{} is given, but this server keeps no responses (--store-responses 0); send the whole "
           "conversation as input",
           field);
  const auto entry = model.responses->find(context.tenant, *out.previous);
  if (!entry)
    throw RequestError(
        400,
        fourfold::format("{} is {}, which is not kept here, or no longer (--store-responses): send the "
                         "whole conversation as input",
                         field, shown(Json(std::string_view(*out.previous)))),
        field, "previous_response_not_found");
  turns = entry->turns;
}

// Names of what a response may carry beside its text. All but the log-probabilities are of tools that are not
// run here, or of thoughts, which are sent in the open: there is nothing to include.
void read_include(Fields& fields, Generation& out) {
  const auto* include = fields.list("include");
  for (std::size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const Json& one = (*include)[i];
    if (!one.is_text()) refuse("include", "include[{}] is {}; it must be a string", i, shown(one));
    if (one.text() == "message.output_text.logprobs") out.logprobs = true;
  }
  if (const auto count = fields.integer("top_logprobs", 0, kLogprobsMax)) {
    out.top_logprobs = static_cast<int>(*count);
    out.logprobs = out.logprobs || *count > 0;
  }
}

void copy(Fields& fields, std::string_view name, std::optional<Json>& out) {
  if (const Json* value = fields.find(name)) out = *value;
}

// It is sent back with every event that shows the response, and kept with it. OpenAI takes 16 names of 64
// characters with texts of 512.
void read_metadata(Fields& fields, ResponsesRequest& out) {
  constexpr std::size_t bytes_max = std::size_t{16} << 10;
  copy(fields, "metadata", out.metadata);
  if (!out.metadata) return;
  if (!out.metadata->is_dict())
    refuse_type("metadata", "metadata is {}; it must be an object", shown(*out.metadata));
  const std::size_t bytes = text::jinja::to_json(*out.metadata).size();
  if (bytes > bytes_max) refuse("metadata", "metadata has {} bytes of JSON; at most {}", bytes, bytes_max);
}

AnswerForm read_text(Fields& fields, ResponsesRequest& out, Conversation& conversation) {
  AnswerForm form;
  auto text = fields.object("text");
  if (!text) return form;
  if (const Json* format = text->find("format")) {
    out.format = *format;
    Fields inside(*format, "text.format", fields.notes());
    form = read_format(inside);
  }
  out.verbosity = read_verbosity(*text, conversation);
  text->finish();
  return form;
}

void read_reasoning(Fields& fields, ResponsesRequest& out, Conversation& conversation) {
  auto reasoning = fields.object("reasoning");
  if (!reasoning) return;
  out.effort = read_effort(*reasoning, "effort", conversation);
  reasoning->ignore({"summary", "generate_summary"});
  reasoning->finish();
}

}  // namespace

ResponsesRequest read_responses(const Json& body, const ServedModel& model, const RequestContext& context,
                                Notes& notes, PromptUse use) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  ResponsesRequest out;
  Plan& plan = out.plan;
  // A response has no place for them.
  fields.refuse_any({"echo", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids"});
  plan.generation = read_generation(fields, model);
  if (plan.generation.answer_count != 1)
    refuse("n", "n is {}; a response has one answer", plan.generation.answer_count);
  read_max_tokens(fields, "max_output_tokens", plan.generation);
  read_include(fields, plan.generation);
  ResponseTurns input;
  read_previous(fields, model, context, out, input.turns);
  read_input_items(fields, input.turns.empty(), input);
  Conversation conversation{.field = "input"};
  out.instructions = fields.text("instructions");
  if (out.instructions) conversation.turns.push_back({.role = "system", .content = *out.instructions});
  conversation.turns.insert(conversation.turns.end(), input.turns.begin(), input.turns.end());
  if (out.store) out.turns = std::move(input.turns);
  plan.tools = read_response_tools(fields, input.tools, conversation.tools);
  copy(fields, "tools", out.tools);
  copy(fields, "tool_choice", out.tool_choice);
  read_metadata(fields, out);
  read_template_fields(fields, conversation);
  read_reasoning(fields, out, conversation);
  const AnswerForm form = read_text(fields, out, conversation);
  plan.make_guide = make_guide(form, plan.tools, plan.generation, model, context, notes);
  // Nothing is cut: a conversation that is too long is refused, whatever this says.
  if (fields.one_of("truncation", {"disabled", "auto"}) == "auto")
    notes.add(NoteKind::field, "truncation", "auto");
  fields.ignore({"client_metadata", "max_tool_calls", "prompt_cache_options"});
  fields.finish();
  plan.split_thinking = true;
  plan.logprobs_with_text = true;
  plan.prompts.push_back(render_prompt(conversation, model, use));
  return out;
}

}  // namespace fourfold::server::api
