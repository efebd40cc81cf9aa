#include "server/api/responses_turns.h"

#include "server/api/request_error.h"
#include "server/api/responses_tools.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

// Items of one answer (a thought, a text, calls) are one turn of the assistant.
Turn& assistant_turn(std::vector<Turn>& turns) {
  if (turns.empty() || turns.back().role != "assistant") turns.push_back({.role = "assistant"});
  return turns.back();
}

void add_message(Fields& item, std::vector<Turn>& turns) {
  const auto role = item.one_of("role", {"user", "assistant", "system", "developer"});
  if (!role) refuse_missing(item.name_of("role"), "{} is missing", item.name_of("role"));
  const Json* content = item.find("content");
  if (content == nullptr) refuse_missing(item.name_of("content"), "{} is missing", item.name_of("content"));
  const std::string text =
      read_content(*content, item.name_of("content"), {"input_text", "output_text", "text", "refusal"},
                   item.notes(), *role == "assistant" ? OtherParts::name : OtherParts::refuse);
  item.ignore({"id", "status", "phase"});
  if (*role == "assistant")
    assistant_turn(turns).content += text;
  else
    turns.push_back({.role = *role == "developer" ? "system" : *role, .content = text});
}

std::string id_of_call(Fields& item) { return item.text("call_id").value_or(item.text("id").value_or("")); }

void add_function_call(Fields& item, std::vector<Turn>& turns) {
  Call call;
  call.id = id_of_call(item);
  call.name = item.text("name").value_or("");
  if (call.name.empty()) refuse_missing(item.name_of("name"), "{} is missing", item.name_of("name"));
  call.name = name_in_space(item.text("namespace").value_or(""), call.name);
  add_call(assistant_turn(turns), std::move(call), item.find("arguments"), item.name_of("arguments"));
  item.ignore({"caller", "async"});
}

// A call of a tool that is no function here: what it was given stands as one argument.
void add_other_call(Fields& item, std::string name, const char* argument, std::vector<Turn>& turns) {
  Call call;
  call.id = id_of_call(item);
  call.name = std::move(name);
  const Json* value = item.find(argument);
  text::jinja::Dict arguments;
  if (value != nullptr && value->is_dict()) arguments = *value->dict();
  if (value != nullptr && !value->is_dict()) arguments.set(std::string_view(argument), *value);
  call.arguments = text::jinja::to_json(Json(std::move(arguments)));
  assistant_turn(turns).calls.push_back(std::move(call));
  item.ignore({"caller", "namespace", "environment", "max_output_length"});
}

void add_result(Fields& item, std::vector<Turn>& turns) {
  const Json* output = item.find("output");
  Turn turn{.role = "tool"};
  turn.call_id = id_of_call(item);
  if (output == nullptr) {
    // The status of a patch may be all there is to say.
    const auto status = item.text("status");
    if (!status) refuse_missing(item.name_of("output"), "{} is missing", item.name_of("output"));
    turn.content = *status;
  } else if (output->is_dict()) {
    turn.content = text::jinja::to_json(*output);
  } else {
    turn.content = read_content(*output, item.name_of("output"), {"input_text", "text", "output_text"},
                                item.notes(), OtherParts::name);
  }
  item.ignore({"caller", "max_output_length"});
  turns.push_back(std::move(turn));
}

// One of a server's tools that this server did not run, and what came of it.
void add_finished_call(Fields& item, std::vector<Turn>& turns) {
  add_function_call(item, turns);
  const auto output = item.text("output");
  const bool failed = item.find("error") != nullptr;
  Turn result{.role = "tool", .content = output.value_or(failed ? "Error" : "")};
  result.call_id = id_of_call(item);
  turns.push_back(std::move(result));
  item.ignore({"server_label", "approval_request_id"});
}

void add_thought(Fields& item, std::vector<Turn>& turns) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const Json* part = item.find(name);
    if (part != nullptr && text.empty())
      text = read_content(*part, item.name_of(name), {"reasoning_text", "summary_text", "text"}, item.notes(),
                          OtherParts::name);
  }
  item.ignore({"encrypted_content"});
  if (!text.empty()) assistant_turn(turns).thinking = text;
}

void add_item(Fields& item, ResponseTurns& out) {
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    add_message(item, out.turns);
  } else if (type == "function_call") {
    add_function_call(item, out.turns);
  } else if (type == "custom_tool_call") {
    add_other_call(item, item.text("name").value_or("custom"), "input", out.turns);
  } else if (type == "local_shell_call" || type == "shell_call") {
    add_other_call(item, type.substr(0, type.size() - 5), "action", out.turns);
  } else if (type == "apply_patch_call") {
    add_other_call(item, "apply_patch", "operation", out.turns);
  } else if (type == "mcp_call") {
    add_finished_call(item, out.turns);
  } else if (type.ends_with("_call_output") && type != "computer_call_output") {
    add_result(item, out.turns);
  } else if (type == "reasoning") {
    add_thought(item, out.turns);
  } else if (const Json* tools = type == "additional_tools" ? item.find("tools") : nullptr) {
    out.tools.push_back(tools);
    item.ignore({"role"});
  } else if (type == "item_reference") {
    refuse(item.name_of("type"),
           "{} is \"item_reference\", and items are not kept here; send the item itself",
           item.name_of("type"));
  } else {
    item.notes().add(NoteKind::item, item.name_of("type"), type);
    return;
  }
  item.ignore({"id", "status"});
  item.finish();
}

}  // namespace

void read_input_items(Fields& fields, bool required, ResponseTurns& out) {
  const Json* input = fields.find("input");
  if (input == nullptr) {
    if (required) refuse_missing("input", "input is missing; it must be a string or an array of items");
    return;
  }
  if (input->is_text()) {
    out.turns.push_back({.role = "user", .content = input->text()});
    return;
  }
  const auto* items = fields.list("input");
  if (items->empty() && required) refuse("input", "input is empty; it must have at least one item");
  for (std::size_t i = 0; i < items->size(); ++i) {
    Fields item((*items)[i], fourfold::format("input[{}]", i), fields.notes());
    add_item(item, out);
  }
  require_answered(out.turns, "input");
}

}  // namespace fourfold::server::api
