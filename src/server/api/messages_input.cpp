#include "server/api/messages_input.h"

#include "server/api/guides.h"
#include "server/api/messages_blocks.h"
#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

void read_thinking(Fields& fields, Conversation& out) {
  auto thinking = fields.object("thinking");
  if (!thinking) {
    out.enable_thinking = false;  // as Anthropic's own, whatever the template's default
    return;
  }
  const auto type = thinking->one_of("type", {"enabled", "disabled", "adaptive", "between_tools"});
  if (!type) refuse_missing("thinking.type", "thinking.type is missing");
  // Where the model is to decide, the template's own default holds.
  if (*type == "enabled" || *type == "disabled") out.enable_thinking = *type == "enabled";
  thinking->ignore({"budget_tokens", "display", "block_binding"});
  thinking->finish();
}

AnswerForm read_output(Fields& fields, Conversation& out) {
  AnswerForm form;
  if (auto config = fields.object("output_config")) {
    read_effort(*config, "effort", out);
    config->ignore({"task_budget"});
    if (auto format = config->object("format")) form = read_format(*format);
    config->finish();
  }
  if (auto format = fields.object("output_format")) {
    if (form.kind != AnswerForm::Kind::free)
      refuse("output_format", "output_format and output_config.format both say what form the answer has");
    form = read_format(*format);
  }
  return form;
}

}  // namespace

Plan read_anthropic(const Json& body, const ServedModel& model, const RequestContext& context, Notes& notes,
                    PromptUse use) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  // Anthropic's tool runner goes on without a thread when it is told so in these words.
  if (fields.find("thread") != nullptr)
    throw RequestError(400,
                       "thread is given, but this server keeps none; send the whole conversation without it",
                       "thread", "thread_unsupported_request");
  fields.refuse_any({"compaction", "container"});
  Plan plan;
  Generation& generation = plan.generation;
  read_sampling(fields, model, generation);
  read_max_tokens(fields, "max_tokens", generation);
  read_stops(fields, "stop_sequences", generation);
  generation.stop_ids = model.stop_ids;
  generation.stream = fields.boolean("stream").value_or(false);
  Conversation conversation;
  MessageTools tools(fields);
  conversation.turns = read_message_turns(fields, tools);
  plan.tools = tools.finish(fields, conversation.tools);
  read_thinking(fields, conversation);
  // An answer that was begun for the model is gone on with.
  conversation.continue_last =
      conversation.turns.back().role == "assistant" && conversation.turns.back().calls.empty();
  plan.make_guide =
      make_guide(read_output(fields, conversation), plan.tools, generation, model, context, notes);
  fields.ignore({"metadata", "service_tier", "betas", "inference_geo", "context_management", "cache_control",
                 "speed", "diagnostics", "fallbacks", "fallback_credit_token", "user_profile_id",
                 "workspace_id"});
  fields.finish();
  plan.split_thinking = true;
  plan.call_prefix = "toolu_";
  plan.prompts.push_back(render_prompt(conversation, model, use));
  return plan;
}

}  // namespace fourfold::server::api
