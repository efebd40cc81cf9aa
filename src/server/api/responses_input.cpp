#include "server/api/responses_input.h"

#include "server/api/guides.h"
#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

// Items of one answer (a thought, a text, calls) are one turn of the assistant.
Turn& assistant_turn(std::vector<Turn>& turns) {
  if (turns.empty() || turns.back().role != "assistant") turns.push_back({.role = "assistant"});
  return turns.back();
}

void add_message(Fields& item, std::vector<Turn>& turns) {
  const auto role = item.one_of("role", {"user", "assistant", "system", "developer"});
  if (!role) refuse(item.name_of("role"), "{} is missing", item.name_of("role"));
  const Json* content = item.find("content");
  if (content == nullptr) refuse(item.name_of("content"), "{} is missing", item.name_of("content"));
  const std::string text = read_content(*content, item.name_of("content"),
                                        {"input_text", "output_text", "text", "refusal"}, item.notes());
  item.ignore({"id", "status", "phase"});
  if (*role == "assistant") {
    assistant_turn(turns).content += text;
    return;
  }
  const std::string name = *role == "developer" ? "system" : *role;
  // Templates take one system message; instructions and what a client adds to them are one.
  if (name == "system" && !turns.empty() && turns.back().role == "system") {
    turns.back().content += "\n\n" + text;
  } else {
    turns.push_back({.role = name, .content = text});
  }
}

void add_call(Fields& item, std::vector<Turn>& turns) {
  Call call;
  call.id = item.text("call_id").value_or("");
  call.name = item.text("name").value_or("");
  if (call.name.empty()) refuse(item.name_of("name"), "{} is missing", item.name_of("name"));
  api::add_call(assistant_turn(turns), std::move(call), item.find("arguments"), item.name_of("arguments"));
  item.ignore({"id", "status"});
}

void add_result(Fields& item, std::vector<Turn>& turns) {
  const Json* output = item.find("output");
  if (output == nullptr) refuse(item.name_of("output"), "{} is missing", item.name_of("output"));
  Turn turn{.role = "tool",
            .content = read_content(*output, item.name_of("output"), {"input_text", "text"}, item.notes())};
  turn.call_id = item.text("call_id").value_or("");
  item.ignore({"id", "status"});
  turns.push_back(std::move(turn));
}

void add_thought(Fields& item, std::vector<Turn>& turns) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const Json* part = item.find(name);
    if (part != nullptr && text.empty())
      text =
          read_content(*part, item.name_of(name), {"reasoning_text", "summary_text", "text"}, item.notes());
  }
  item.ignore({"id", "status", "encrypted_content"});
  if (!text.empty()) assistant_turn(turns).thinking = text;
}

void add_item(const Json& value, std::size_t index, std::vector<Turn>& turns, Notes& notes) {
  Fields item(value, fourfold::format("input[{}]", index), notes);
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    add_message(item, turns);
  } else if (type == "function_call") {
    add_call(item, turns);
  } else if (type == "function_call_output") {
    add_result(item, turns);
  } else if (type == "reasoning") {
    add_thought(item, turns);
  } else {
    refuse(item.name_of("type"),
           "{} is {}; this server takes message, function_call, function_call_output and reasoning",
           item.name_of("type"), shown(Json(std::string_view(type))));
  }
  item.finish();
}

void add_input(Fields& fields, std::vector<Turn>& turns) {
  const Json* input = fields.find("input");
  if (input == nullptr) refuse("input", "input is missing; it must be a string or an array of items");
  if (input->is_text()) {
    turns.push_back({.role = "user", .content = input->text()});
    return;
  }
  const auto* items = fields.list("input");
  if (items->empty()) refuse("input", "input is empty; it must have at least one item");
  for (std::size_t i = 0; i < items->size(); ++i) add_item((*items)[i], i, turns, fields.notes());
  require_answered(turns, "input");
}

void read_choice(Fields& fields, Tools& out) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_text()) {
    const std::string word = *fields.one_of("tool_choice", {"auto", "none", "required"});
    out.choice = word == "none"       ? ToolChoice::none
                 : word == "required" ? ToolChoice::required
                                      : ToolChoice::automatic;
  } else {
    Fields named(*choice, "tool_choice", fields.notes());
    if (named.one_of("type", {"function"}).value_or("").empty())
      refuse("tool_choice.type", "tool_choice.type is missing; it must be \"function\"");
    out.choice = ToolChoice::named;
    out.named = named.text("name").value_or("");
    named.finish();
  }
  require_named(out, "tool_choice");
}

Tools read_tools(Fields& fields, std::optional<Json>& for_template) {
  Tools out;
  const auto* items = fields.list("tools");
  std::vector<Json> shown_tools;
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    Fields tool((*items)[i], fourfold::format("tools[{}]", i), fields.notes());
    if (tool.one_of("type", {"function"}).value_or("").empty())
      refuse(tool.name_of("type"), "{} is missing; it must be \"function\"", tool.name_of("type"));
    out.list.push_back(read_tool(tool, tool.find("parameters")));
    tool.ignore({"strict"});
    tool.finish();
    shown_tools.push_back(template_tool(out.list.back()));
  }
  require_distinct(out.list, "tools");
  read_choice(fields, out);
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (out.offered()) for_template = Json::list(std::move(shown_tools));
  return out;
}

void refuse_what_is_stored(Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation"})
    if (fields.find(name) != nullptr)
      refuse(name, "{} is given, but this server keeps no responses; send the whole conversation as input",
             name);
  for (const char* name : {"prompt", "max_tool_calls", "context_management"})
    if (fields.find(name) != nullptr) refuse(name, "{} is not served here; leave it out", name);
  fields.only_false({"background"});
  if (const auto cut = fields.text("truncation"); cut && *cut != "disabled")
    refuse("truncation", "truncation is {}; this server only does \"disabled\", nothing is cut silently",
           shown(Json(std::string_view(*cut))));
  if (const auto* include = fields.list("include"))
    for (const Json& one : *include)
      if (!one.is_text() || one.text() != "reasoning.encrypted_content")
        refuse("include", "include names {}, which this server does not have", shown(one));
}

}  // namespace

ResponsesRequest read_responses(const Json& body, const ServedModel& model, const RequestContext& context,
                                Notes& notes) {
  Fields fields(body, "", notes);
  require_model(fields, model);
  refuse_what_is_stored(fields);
  ResponsesRequest out;
  Plan& plan = out.plan;
  plan.generation = read_generation(fields, model);
  if (plan.generation.answer_count != 1)
    refuse("n", "n is {}; a response has one answer", plan.generation.answer_count);
  read_max_tokens(fields, "max_output_tokens", plan.generation);
  fields.only_number("top_logprobs", 0);
  Conversation conversation;
  out.instructions = fields.text("instructions");
  if (out.instructions) conversation.turns.push_back({.role = "system", .content = *out.instructions});
  add_input(fields, conversation.turns);
  plan.tools = read_tools(fields, conversation.tools);
  if (const Json* tools = fields.find("tools")) out.tools = *tools;
  if (const Json* choice = fields.find("tool_choice")) out.tool_choice = *choice;
  if (const Json* metadata = fields.find("metadata")) out.metadata = *metadata;
  read_template_fields(fields, conversation);
  if (auto reasoning = fields.object("reasoning")) {
    out.effort = reasoning->one_of("effort", {"none", "minimal", "low", "medium", "high", "xhigh"});
    if (out.effort == "none" && !conversation.enable_thinking) conversation.enable_thinking = false;
    reasoning->ignore({"summary", "generate_summary"});
    reasoning->finish();
  }
  AnswerForm form;
  if (auto text = fields.object("text")) {
    if (const Json* format = text->find("format")) {
      out.format = *format;
      Fields inside(*format, "text.format", notes);
      form = read_format(inside);
    }
    if (const auto verbosity = text->text("verbosity"); verbosity && *verbosity != "medium")
      refuse("text.verbosity", "text.verbosity is not served here; leave it out or say \"medium\"");
    text->finish();
  }
  plan.make_guide = make_guide(form, plan.tools, plan.generation, model, context, notes);
  fields.finish();
  plan.split_thinking = true;
  plan.prompts.push_back(render_prompt(conversation, model));
  return out;
}

}  // namespace fourfold::server::api
