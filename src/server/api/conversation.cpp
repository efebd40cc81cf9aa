#include "server/api/conversation.h"

#include <map>
#include <set>
#include <utility>

#include "engine/answer_text.h"
#include "server/api/generation.h"
#include "server/api/harmony_turns.h"
#include "server/api/request_error.h"
#include "server/api/system_turns.h"
#include "server/api/template_tools.h"
#include "server/json_guard.h"
#include "text/chat_prompt.h"
#include "text/jinja/json_value.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

constexpr std::int64_t kRenderBytesMax = std::int64_t{512} << 20;

Json template_message(const Turn& turn, text::CallFormat format) {
  text::jinja::Dict out;
  out.set("role", std::string_view(turn.role));
  // A turn of calls alone has no content; templates test it for truth.
  out.set("content", std::string_view(turn.content));
  if (turn.thinking)
    out.set(format == text::CallFormat::harmony ? "thinking" : "reasoning_content",
            std::string_view(*turn.thinking));
  if (!turn.calls.empty()) {
    std::vector<Json> calls;
    for (const Call& call : turn.calls) {
      text::jinja::Dict function, entry;
      function.set("name", std::string_view(call.name));
      function.set("arguments", std::string_view(call.arguments));
      entry.set("id", std::string_view(call.id));
      entry.set("type", "function");
      entry.set("function", std::move(function));
      calls.emplace_back(std::move(entry));
    }
    out.set("tool_calls", Json::list(std::move(calls)));
  }
  if (!turn.call_id.empty()) out.set("tool_call_id", std::string_view(turn.call_id));
  return out;
}

}  // namespace

std::string without_folder(std::string message) {
  for (const std::string_view file : {"chat_template.jinja", "tokenizer_config.json"}) {
    const std::size_t at = message.find(file);
    if (at != std::string::npos && at > 0 && message[at - 1] == '/') return message.substr(at);
  }
  return message;
}

namespace {

// Stands behind the words that the model is to go on with, while the template is rendered: what it puts
// behind them is found by it, whatever the words are.
constexpr std::string_view kGoOnHere = "\x01 go on here \x01";

Turn marked(Turn turn) {
  const std::size_t last = turn.content.find_last_not_of(" \t\r\n");
  turn.content.resize(last == std::string::npos ? 0 : last + 1);
  turn.content += kGoOnHere;
  return turn;
}

void reopen_last(text::ChatPrompt& prompt, const std::string& field) {
  const std::size_t at = prompt.text().rfind(kGoOnHere);
  if (at == std::string::npos)
    refuse(field, "the last message is the assistant's, but this model's template cannot continue it");
  prompt.cut(at);
}

void read_calls(Fields& message, Turn& out) {
  const auto* calls = message.list("tool_calls");
  for (std::size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    Fields call((*calls)[i], fourfold::format("{}[{}]", message.name_of("tool_calls"), i), message.notes());
    const std::string type = call.one_of("type", {"function", "custom"}).value_or("function");
    auto function = call.object(type);
    if (!function) refuse_missing(call.name_of(type), "{} is missing", call.name_of(type));
    Call one;
    one.id = call.text("id").value_or("");
    one.name = function->text("name").value_or("");
    if (one.name.empty())
      refuse_missing(function->name_of("name"), "{} is missing", function->name_of("name"));
    if (type == "function") {
      add_call(out, std::move(one), function->find("arguments"), function->name_of("arguments"));
    } else {
      // Made by another server; its free text stands as one argument.
      text::jinja::Dict arguments;
      arguments.set("input", std::string_view(function->text("input").value_or("")));
      const Json all(std::move(arguments));
      add_call(out, std::move(one), &all, function->name_of("input"));
    }
    function->finish();
    call.ignore({"index"});
    call.finish();
  }
}

Turn read_message(const Json& value, std::size_t index, Notes& notes) {
  Fields message(value, fourfold::format("messages[{}]", index), notes);
  Turn out;
  const auto role = message.one_of("role", {"system", "developer", "user", "assistant", "tool"});
  if (!role) refuse_missing(message.name_of("role"), "{} is missing", message.name_of("role"));
  out.role = *role == "developer" ? "system" : *role;
  const bool assistant = out.role == "assistant";
  const Json* content = message.find("content");
  if (content != nullptr) {
    out.content =
        read_content(*content, message.name_of("content"), {"text", "input_text", "output_text", "refusal"},
                     notes, out.role == "user" ? OtherParts::refuse : OtherParts::name);
  } else if (!assistant) {
    refuse_missing(message.name_of("content"), "{} is missing; it must be a string or an array of text parts",
                   message.name_of("content"));
  }
  if (assistant) {
    read_calls(message, out);
    out.thinking = message.text("reasoning_content");
    const auto other = message.text("reasoning");
    if (!out.thinking) out.thinking = other;
  }
  if (out.role == "tool") out.call_id = message.text("tool_call_id").value_or("");
  message.ignore({"name", "refusal", "annotations", "id"});
  message.finish();
  return out;
}

}  // namespace

std::string words_of_broken_call(std::string_view name, std::string_view arguments) {
  return fourfold::format("[a call of {} that is not whole: {}]", name, arguments);
}

void add_call(Turn& turn, Call call, const Json* arguments, const std::string& field) {
  const bool text = arguments != nullptr && arguments->is_text();
  if (arguments != nullptr && !text && !arguments->is_dict())
    refuse(field, "{} is {}; it must be the text of a JSON object", field, shown(*arguments));
  if (arguments != nullptr && !text) {
    call.arguments = text::jinja::to_json(*arguments);
  } else if (!text || arguments->text().find_first_not_of(" \t\r\n") == std::string::npos) {
    call.arguments = "{}";
  } else {
    bool whole = false;
    try {
      whole = text::jinja::parse_json(arguments->text(), field, text::jinja::JsonRules::answer).is_dict();
    } catch (const Error&) {
    }
    if (!whole) {
      if (!turn.content.empty()) turn.content += "\n\n";
      turn.content += words_of_broken_call(call.name, arguments->text());
      turn.broken_calls.push_back(std::move(call.id));
      return;
    }
    call.arguments = arguments->text();
  }
  turn.calls.push_back(std::move(call));
}

std::string other_part(const std::string& type, const std::string& field, Notes& notes, OtherParts others) {
  if (others == OtherParts::refuse)
    refuse(field, "{} is {}; this model reads text only", field, shown(Json(std::string_view(type))));
  notes.add(NoteKind::content, field, type);
  std::string_view what = "part";
  for (const std::string_view word : {"image", "audio", "video", "file", "document"})
    if (type.find(word) != std::string::npos) what = word;
  return fourfold::format("[{} omitted: this model reads text]", what);
}

std::string read_content(const Json& value, const std::string& field,
                         std::initializer_list<std::string_view> types, Notes& notes, OtherParts others) {
  if (value.is_text()) return value.text();
  if (!value.is_sequence())
    refuse(field, "{} is {}; it must be a string or an array of text parts", field, shown(value));
  std::string out;
  std::size_t index = 0;
  for (const Json& item : value.sequence()->items) {
    const std::string place = fourfold::format("{}[{}]", field, index++);
    if (item.is_text()) {
      out += item.text();
      continue;
    }
    Fields part(item, place, notes);
    const std::string type = part.text("type").value_or("text");
    bool known = false;
    for (const std::string_view name : types) known = known || type == name;
    if (!known) {
      out += (out.empty() ? "" : "\n") + other_part(type, place + ".type", notes, others) + "\n";
      continue;
    }
    const auto said = part.text(type == "refusal" ? "refusal" : "text");
    if (!said) refuse_missing(place + ".text", "{}.text is missing", place);
    part.ignore({"cache_control", "annotations", "logprobs", "citations"});
    part.finish();
    out += *said;
  }
  return out;
}

void require_answered(const std::vector<Turn>& turns, const std::string& field) {
  std::set<std::string> open;  // ids of all calls so far
  bool any = false, unnamed = false;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    for (const Call& call : turns[i].calls) {
      any = true;
      unnamed = unnamed || call.id.empty();
      open.insert(call.id);
    }
    for (const std::string& id : turns[i].broken_calls) {
      any = true;
      open.insert(id);
    }
    if (turns[i].role != "tool") continue;
    const std::string place = fourfold::format("{}[{}]", field, i);
    if (!any) refuse(place, "{} is the result of a call, but no call stands before it", place);
    if (!turns[i].call_id.empty() && !unnamed && !open.contains(turns[i].call_id))
      refuse(place, "{} answers call {}, which no message before it makes", place,
             shown(Json(std::string_view(turns[i].call_id))));
  }
}

std::vector<Turn> read_messages(Fields& fields) {
  const auto* messages = fields.list("messages");
  if (messages == nullptr) refuse_missing("messages", "messages is missing; it must be an array of messages");
  if (messages->empty()) refuse("messages", "messages is empty; it must have at least one message");
  std::vector<Turn> out;
  for (std::size_t i = 0; i < messages->size(); ++i)
    out.push_back(read_message((*messages)[i], i, fields.notes()));
  require_answered(out, "messages");
  return out;
}

std::optional<std::string> read_effort(Fields& fields, std::string_view name, Conversation& out) {
  const auto effort = fields.one_of(name, text::kEfforts);
  if (!effort) return {};
  if (*effort == "none" && !out.enable_thinking) out.enable_thinking = false;
  out.template_variables.set("reasoning_effort", std::string_view(*effort));
  return effort;
}

std::optional<std::string> read_verbosity(Fields& fields, Conversation& out) {
  const auto verbosity = fields.one_of("verbosity", {"low", "medium", "high"});
  if (verbosity) out.template_variables.set("verbosity", std::string_view(*verbosity));
  return verbosity;
}

void read_template_fields(Fields& fields, Conversation& out) {
  out.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  out.continue_last = fields.boolean("continue_final_message").value_or(false);
  if (out.continue_last && (out.turns.empty() || out.turns.back().role != "assistant"))
    refuse("continue_final_message",
           "continue_final_message is true, but the last message is not the assistant's");
  // The calls would be left out without a word.
  if (out.continue_last && !out.turns.back().calls.empty())
    refuse(
        "continue_final_message",
        "continue_final_message is true, but the last message calls tools; only words can be gone on with");
  if (fields.find("chat_template") != nullptr)
    refuse("chat_template", "chat_template is not taken from requests; the model's own is used");
  read_effort(fields, "reasoning_effort", out);
  if (const auto wanted = fields.boolean("enable_thinking")) out.enable_thinking = wanted;
  const Json* variables = fields.find("chat_template_kwargs");
  if (variables == nullptr) return;
  Fields given(*variables, "chat_template_kwargs", fields.notes());
  if (const auto wanted = given.boolean("enable_thinking")) out.enable_thinking = wanted;
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "chat_template"})
    if (given.find(name) != nullptr)
      refuse(given.name_of(name), "{} cannot be set; it has a field of its own", given.name_of(name));
  for (const auto& [name, value] : variables->dict()->items())
    if (name.text() != "enable_thinking") out.template_variables.set(name, value);
}

void require_countable(std::size_t bytes, const std::string& field) {
  if (bytes > kCountableBytesMax)
    refuse(field, "{} has {} bytes of text; at most {} are tokenized at once", field, bytes,
           kCountableBytesMax);
}

namespace {

// Templates get arguments as values. Each text of them is bounded where it is read; here they are together.
void require_few_values(const std::vector<Turn>& turns, const std::string& field) {
  std::size_t count = 0;
  for (const Turn& turn : turns)
    for (const Call& call : turn.calls) count += measure_json(call.arguments).value_count;
  if (count > JsonBounds().value_count_max)
    refuse(field, "the arguments of all tool calls have about {} values; at most {} are allowed", count,
           JsonBounds().value_count_max);
}

}  // namespace

namespace {

// Kimi's models know calls by names of their own, functions.NAME:0, and results by the name of their call.
// The first template writes the names and numbers the calls of each turn; a later one shows the ids it gets,
// and its models number them through the conversation.
void give_kimi_ids(std::vector<Turn>& turns, bool numbers_through) {
  std::map<std::string, std::string> ids;
  std::size_t number = 0;
  for (Turn& turn : turns) {
    if (!numbers_through) number = 0;
    for (Call& call : turn.calls) {
      const std::string id = fourfold::format("functions.{}:{}", call.name, number++);
      ids[std::exchange(call.id, id)] = id;
    }
    if (const auto known = ids.find(turn.call_id); known != ids.end()) turn.call_id = known->second;
  }
}

}  // namespace

Prompt render_prompt(const Conversation& conversation, const ServedModel& model, PromptUse use) {
  const std::string& field = conversation.field;
  if (!model.chat_template)
    refuse(field, "this model has no chat template; send a prompt to /v1/completions");
  require_few_values(conversation.turns, field);
  text::ChatRequest request;
  std::vector<Json> messages;
  std::vector<Turn> turns = settle_turns(conversation.turns, *model.chat_template);
  const text::CallFormat format = model.chat_template->call_format();
  if (format == text::CallFormat::kimi) give_kimi_ids(turns, model.chat_template->shows_call_ids());
  if (format == text::CallFormat::harmony) turns = harmony_turns(std::move(turns));
  for (const Turn& turn : turns)
    messages.push_back(
        template_message(conversation.continue_last && &turn == &turns.back() ? marked(turn) : turn, format));
  request.messages = Json::list(std::move(messages));
  request.tools = conversation.tools;
  request.add_generation_prompt = conversation.add_generation_prompt && !conversation.continue_last;
  request.enable_thinking = conversation.enable_thinking;
  request.extra = conversation.template_variables;
  if (format == text::CallFormat::harmony) describe_tools(request);
  if (format == text::CallFormat::deepseek_plain) complete_tools(request);
  request.limits.bytes_max = kRenderBytesMax;
  std::optional<text::ChatPrompt> prompt;
  try {
    prompt.emplace(*model.chat_template, model.tokenizer, std::move(request));
  } catch (const Error& error) {
    if (error.code() == Code::cancelled) throw;
    refuse(field, "the chat template refuses the conversation: {}", without_folder(error.what()));
  }
  if (conversation.continue_last) reopen_last(*prompt, field);
  if (use == PromptUse::answer) require_near_context(prompt->text().size(), field, model);
  if (use == PromptUse::count) require_countable(prompt->text().size(), field);
  Prompt out{.field = field, .ids = prompt->ids(), .in_message = conversation.continue_last};
  out.starts_thinking = engine::ends_in_thinking(out.ids, model.tokenizer);
  return out;
}

}  // namespace fourfold::server::api
