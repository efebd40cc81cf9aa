#include "server/api/messages_input.h"

#include "server/api/guides.h"
#include "server/api/request_error.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

[[noreturn]] void refuse_type(const Fields& block, const std::string& type) {
  refuse(block.name_of("type"), "{} is {}; this model reads text, tool_use, tool_result and thinking",
         block.name_of("type"), shown(Json(std::string_view(type))));
}

// What is said by the user: texts make one turn, each tool_result one of its own.
void add_user_block(Fields& block, std::vector<Turn>& turns, bool& open) {
  const std::string type = block.text("type").value_or("");
  if (type == "text") {
    if (!std::exchange(open, true)) turns.push_back({.role = "user"});
    turns.back().content += block.text("text").value_or("");
    block.ignore({"citations"});
  } else if (type == "tool_result") {
    open = false;
    Turn turn{.role = "tool"};
    turn.call_id = block.text("tool_use_id").value_or("");
    if (const Json* content = block.find("content"))
      turn.content = read_content(*content, block.name_of("content"), {"text"}, block.notes());
    // The template has no other place for it.
    if (block.boolean("is_error").value_or(false)) turn.content = "Error: " + turn.content;
    turns.push_back(std::move(turn));
  } else {
    refuse_type(block, type);
  }
}

void add_assistant_block(Fields& block, Turn& turn) {
  const std::string type = block.text("type").value_or("");
  if (type == "text") {
    turn.content += block.text("text").value_or("");
    block.ignore({"citations"});
  } else if (type == "thinking") {
    turn.thinking = turn.thinking.value_or("") + block.text("thinking").value_or("");
    block.ignore({"signature"});
  } else if (type == "redacted_thinking") {
    block.ignore({"data"});
  } else if (type == "tool_use") {
    Call call;
    call.id = block.text("id").value_or("");
    call.name = block.text("name").value_or("");
    if (call.name.empty()) refuse(block.name_of("name"), "{} is missing", block.name_of("name"));
    call.arguments = read_arguments(block.find("input"), block.name_of("input"));
    turn.calls.push_back(std::move(call));
  } else {
    refuse_type(block, type);
  }
}

void add_message(const Json& value, std::size_t index, std::vector<Turn>& turns, Notes& notes) {
  Fields message(value, fourfold::format("messages[{}]", index), notes);
  const auto role = message.one_of("role", {"user", "assistant"});
  if (!role) refuse(message.name_of("role"), "{} is missing", message.name_of("role"));
  const Json* content = message.find("content");
  if (content == nullptr) refuse(message.name_of("content"), "{} is missing", message.name_of("content"));
  const std::string field = message.name_of("content");
  if (content->is_text()) {
    turns.push_back({.role = *role, .content = content->text()});
  } else {
    const auto* blocks = message.list("content");
    if (*role == "assistant") turns.push_back({.role = *role});
    bool open = false;
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      Fields block((*blocks)[i], fourfold::format("{}[{}]", field, i), notes);
      if (*role == "assistant") {
        add_assistant_block(block, turns.back());
      } else {
        add_user_block(block, turns, open);
      }
      block.ignore({"cache_control"});
      block.finish();
    }
  }
  message.finish();
}

std::vector<Turn> read_turns(Fields& fields) {
  std::vector<Turn> out;
  if (const Json* system = fields.find("system"))
    out.push_back({.role = "system", .content = read_content(*system, "system", {"text"}, fields.notes())});
  const auto* messages = fields.list("messages");
  if (messages == nullptr || messages->empty())
    refuse("messages", "messages is {}; it must have at least one message", messages ? "empty" : "missing");
  for (std::size_t i = 0; i < messages->size(); ++i) add_message((*messages)[i], i, out, fields.notes());
  require_answered(out, "messages");
  return out;
}

void read_choice(Fields& fields, Tools& out) {
  auto choice = fields.object("tool_choice");
  if (!choice) return;
  const auto type = choice->one_of("type", {"auto", "any", "tool", "none"});
  if (!type) refuse("tool_choice.type", "tool_choice.type is missing");
  out.choice = *type == "none"   ? ToolChoice::none
               : *type == "any"  ? ToolChoice::required
               : *type == "tool" ? ToolChoice::named
                                 : ToolChoice::automatic;
  if (*type == "tool") out.named = choice->text("name").value_or("");
  out.parallel = !choice->boolean("disable_parallel_tool_use").value_or(false);
  choice->finish();
  require_named(out, "tool_choice");
}

Tools read_tools(Fields& fields, std::optional<Json>& for_template) {
  Tools out;
  const auto* items = fields.list("tools");
  std::vector<Json> shown_tools;
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    Fields tool((*items)[i], fourfold::format("tools[{}]", i), fields.notes());
    tool.one_of("type", {"custom"});
    out.list.push_back(read_tool(tool, tool.find("input_schema")));
    tool.ignore({"cache_control", "strict", "input_examples", "eager_input_streaming", "defer_loading"});
    tool.finish();
    shown_tools.push_back(template_tool(out.list.back()));
  }
  require_distinct(out.list, "tools");
  read_choice(fields, out);
  if (out.offered()) for_template = Json::list(std::move(shown_tools));
  return out;
}

void read_thinking(Fields& fields, Conversation& out) {
  auto thinking = fields.object("thinking");
  if (!thinking) {
    out.enable_thinking = false;  // as Anthropic's own, whatever the template's default
    return;
  }
  const auto type = thinking->one_of("type", {"enabled", "disabled", "adaptive"});
  if (!type) refuse("thinking.type", "thinking.type is missing");
  if (*type != "adaptive") out.enable_thinking = *type == "enabled";
  thinking->ignore({"budget_tokens", "display"});
  thinking->finish();
}

AnswerForm read_output(Fields& fields) {
  AnswerForm form;
  if (auto config = fields.object("output_config")) {
    config->ignore({"effort"});
    if (auto format = config->object("format")) form = read_format(*format);
    config->finish();
  }
  if (auto format = fields.object("output_format")) form = read_format(*format);
  return form;
}

}  // namespace

Plan read_anthropic(const Json& body, const ServedModel& model, const RequestContext& context, Notes& notes) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  Plan plan;
  Generation& generation = plan.generation;
  read_sampling(fields, model, generation);
  read_max_tokens(fields, "max_tokens", model, generation);
  read_stops(fields, "stop_sequences", generation);
  generation.stop_ids = model.stop_ids;
  generation.stream = fields.boolean("stream").value_or(false);
  Conversation conversation;
  conversation.turns = read_turns(fields);
  plan.tools = read_tools(fields, conversation.tools);
  read_thinking(fields, conversation);
  // An answer that was begun for the model is gone on with.
  conversation.continue_last =
      conversation.turns.back().role == "assistant" && conversation.turns.back().calls.empty();
  plan.make_guide = make_guide(read_output(fields), plan.tools, generation, model, context);
  fields.ignore(
      {"metadata", "service_tier", "betas", "inference_geo", "context_management", "cache_control"});
  fields.finish();
  plan.split_thinking = true;
  plan.call_prefix = "toolu_";
  plan.prompts.push_back(render_prompt(conversation, model));
  return plan;
}

}  // namespace fourfold::server::api
