#include "text/chat_template.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "json/parse.h"
#include "text/jinja/json_value.h"

namespace fourfold::text {

namespace {

constexpr std::size_t kTemplateBytesMax = std::size_t{4} << 20;

// As Python's json reads them: a model writes NaN and integers of any size, and templates iterate over them.
std::optional<jinja::Value> read_arguments(const std::string& text) {
  try {
    return jinja::parse_json(text, "arguments");
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Clients send a call's arguments as JSON text (OpenAI's form); templates iterate over them. Text that is no
// JSON object stays as it is.
jinja::Value with_parsed_arguments(const jinja::Value& call) {
  const jinja::Dict* outer = call.dict();
  if (outer == nullptr) return call;
  const jinja::Value* function = outer->find("function");
  const jinja::Dict* holder = function != nullptr ? function->dict() : outer;
  const jinja::Value* arguments = holder == nullptr ? nullptr : holder->find("arguments");
  if (arguments == nullptr || !arguments->is_text()) return call;
  std::optional<jinja::Value> parsed = read_arguments(arguments->text());
  if (!parsed || !parsed->is_dict()) return call;
  jinja::Dict changed = *holder;
  changed.set("arguments", std::move(*parsed));
  if (function == nullptr) return changed;
  jinja::Dict out = *outer;
  out.set("function", std::move(changed));
  return out;
}

jinja::Value with_parsed_calls(const jinja::Value& message) {
  const jinja::Dict* dict = message.dict();
  const jinja::Value* calls = dict == nullptr ? nullptr : dict->find("tool_calls");
  if (calls == nullptr || !calls->is_sequence()) return message;
  std::vector<jinja::Value> parsed;
  for (const jinja::Value& call : calls->sequence()->items) parsed.push_back(with_parsed_arguments(call));
  jinja::Dict out = *dict;
  out.set("tool_calls", jinja::Value::list(std::move(parsed)));
  return out;
}

// Some templates make a control token of the role: '<|' + message.role + '|>'. These few words are as good as
// the template's own; any other is text.
jinja::Value with_own_role(const jinja::Value& message) {
  const jinja::Value* role = message.dict()->find("role");
  if (role == nullptr || !role->is_text()) return message;
  for (const std::string_view known : {"system", "developer", "user", "assistant", "tool"}) {
    if (role->text() != known) continue;
    jinja::Dict out = *message.dict();
    out.set("role", TracedText::own(std::string(known)));
    return out;
  }
  return message;
}

jinja::Value prepared_messages(const jinja::Value& messages, bool arguments_as_text) {
  if (!messages.is_sequence())
    fail(Code::invalid_request, "messages is not a list but {}", jinja::type_name(messages));
  std::vector<jinja::Value> out;
  for (const jinja::Value& message : messages.sequence()->items) {
    if (!message.is_dict()) {
      fail(Code::invalid_request, "messages[{}] is not an object but {}", out.size(),
           jinja::type_name(message));
    }
    out.push_back(with_own_role(arguments_as_text ? message : with_parsed_calls(message)));
  }
  return jinja::Value::list(std::move(out));
}

bool ends_with(std::string_view text, std::string_view first, std::string_view second) {
  return text.ends_with(second) && text.substr(0, text.size() - second.size()).ends_with(first);
}

// The format a call of this tool was written in: by what stands around its name.
CallFormat format_of_call(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return CallFormat::tagged;
  const std::string_view before = text.substr(0, at), behind = text.substr(at + name.size());
  const CallMarks deepseek = marks_of(CallFormat::deepseek), kimi = marks_of(CallFormat::kimi);
  if (ends_with(before, "to=", marks_of(CallFormat::harmony).before_name)) return CallFormat::harmony;
  if (before.ends_with(marks_of(CallFormat::minimax).call_open)) return CallFormat::minimax;
  if (before.ends_with(kCallOpen))
    return behind.starts_with('\n') ? CallFormat::glm : CallFormat::glm_compact;
  if (before.ends_with(deepseek.name_close)) return CallFormat::deepseek;
  if (before.ends_with(deepseek.call_open)) return CallFormat::deepseek_plain;
  const CallMarks mistral = marks_of(CallFormat::mistral);
  if (before.ends_with(mistral.call_open) && behind.starts_with(mistral.name_close))
    return CallFormat::mistral;
  if (ends_with(before, kimi.call_open, kimi.before_name)) return CallFormat::kimi;
  // Behind the last one before the name: a template may also tell the model how calls are written.
  const std::size_t open = before.rfind(kCallOpen);
  const std::size_t inside =
      open == std::string_view::npos ? open : before.find_first_not_of(" \n", open + kCallOpen.size());
  return inside != std::string_view::npos && before[inside] == '{' ? CallFormat::json : CallFormat::tagged;
}

std::tm local_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm out{};
  localtime_r(&seconds, &out);
  return out;
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
void define_special_tokens(const boost::json::object& config, ChatTemplate& out) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const boost::json::value* token = config.if_contains(name);
    if (token != nullptr && token->is_object()) token = token->get_object().if_contains("content");
    if (token != nullptr && token->is_string()) out.define(name, std::string(token->get_string()));
  }
}

std::optional<std::string> named_template(const boost::json::value& member, std::string_view wanted,
                                          std::string_view file) {
  if (member.is_string()) return std::string(member.get_string());
  if (!member.is_array())
    fail(Code::bad_checkpoint, "{}: chat_template is neither a string nor a list", file);
  std::optional<std::string> fallback;
  for (const boost::json::value& entry : member.get_array()) {
    const boost::json::value* name = entry.is_object() ? entry.get_object().if_contains("name") : nullptr;
    const boost::json::value* source =
        entry.is_object() ? entry.get_object().if_contains("template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
      fail(Code::bad_checkpoint, "{}: an entry of chat_template has no name or no template", file);
    }
    if (std::string_view(name->get_string()) == wanted) return std::string(source->get_string());
    if (std::string_view(name->get_string()) == "default") fallback = std::string(source->get_string());
  }
  return fallback;
}

// A conversation a template is tried with. turns: JSON, one behind another.
ChatRequest trial_of(std::string_view turns) {
  ChatRequest request;
  request.messages = parse_chat_json(format("[{}]", turns), "trial");
  request.limits.steps_max = 1'000'000;
  for (const char* token : {"bos_token", "eos_token"}) request.extra.set(token, "");
  return request;
}

constexpr std::string_view kUserTurn = R"({"role": "user", "content": "a"})";

}  // namespace

jinja::Value parse_chat_json(std::string_view json, std::string_view what) {
  return jinja::parse_json(json, what);
}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name) {
  ChatTemplate out;
  out.parsed_ = std::make_shared<const Parsed>(
      Parsed{std::string(name), std::string(source), jinja::parse_template(source, name)});
  out.find_call_form();
  out.find_system_form();
  out.find_user_form();
  out.find_efforts();
  return out;
}

bool ChatTemplate::renders(const ChatRequest& request) const {
  try {
    render(request);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void ChatTemplate::find_system_form() {
  const ChatRequest request =
      trial_of(R"({"role": "system", "content": "word 0"}, {"role": "user", "content": "word 1"},)"
               R"( {"role": "assistant", "content": "word 2"}, {"role": "system", "content": "word 3"},)"
               R"( {"role": "user", "content": "word 4"}, {"role": "system", "content": "word 5"},)"
               R"( {"role": "user", "content": "word 6"})");
  try {
    const std::string text = render(request);
    std::size_t at = text.find("word 2");
    for (const char* word : {"word 3", "word 4", "word 5", "word 6"})
      if (at != std::string::npos) at = text.find(word, at);
    later_system_turns_ = at != std::string::npos;
  } catch (const Error&) {
    later_system_turns_ = false;
  }
}

void ChatTemplate::find_user_form() {
  const std::string user(kUserTurn);
  const std::string result =
      user +
      R"(, {"role": "assistant", "content": "", "tool_calls": [{"id": "a12345678", "type": "function",)"
      R"( "function": {"name": "trial_call", "arguments": "{\"x\": 1}"}}]},)"
      R"( {"role": "tool", "tool_call_id": "a12345678", "content": "b"})";
  const auto takes = [this](const std::string& turns) { return renders(trial_of(turns)); };
  users_in_a_row_ = !takes(user) || takes(user + "," + user);
  users_behind_results_ = !takes(result) || takes(result + "," + user);
}

void ChatTemplate::find_efforts() {
  if (call_format_ == CallFormat::harmony) {
    efforts_ = {"low", "medium", "high"};
    return;
  }
  std::vector<std::string_view> taken;  // efforts_ stays empty meanwhile: words are tried as they are
  for (const std::string_view effort : kEfforts) {
    ChatRequest request = trial_of(kUserTurn);
    request.extra.set("reasoning_effort", effort);
    if (renders(request)) taken.push_back(effort);
  }
  if (taken.size() < kEfforts.size()) efforts_ = std::move(taken);
}

std::optional<std::string_view> ChatTemplate::effort_for(const ChatRequest& request) const {
  if (efforts_.empty()) return {};
  const jinja::Value* given = request.extra.find("reasoning_effort");
  const auto known = std::ranges::find(
      kEfforts, given != nullptr && given->is_text() ? std::string_view(given->text()) : std::string_view());
  if (given != nullptr && !given->is_none() && known == kEfforts.end())
    return {};  // refused by its own words
  std::string_view asked = known == kEfforts.end() ? std::string_view() : *known;
  // Minimal is little more than none; where a template tells the two apart, so do we.
  if (asked == "minimal" && std::ranges::find(efforts_, asked) == efforts_.end()) asked = "none";
  // Where none is among them the effort is what switches thinking; elsewhere a model thinks as little as it
  // can.
  const bool is_switch = efforts_.front() == "none";
  if (request.enable_thinking == false && (is_switch || asked.empty())) asked = "none";
  if (request.enable_thinking == true && is_switch && (asked.empty() || asked == "none")) asked = "high";
  if (asked.empty()) return {};
  // The next that is no less, or the most there is.
  const auto enough = std::ranges::find_if(efforts_, [&](std::string_view effort) {
    return std::ranges::find(kEfforts, effort) >= std::ranges::find(kEfforts, asked);
  });
  return enough == efforts_.end() ? efforts_.back() : *enough;
}

CallFormat ChatTemplate::try_call(std::string_view id) {
  const auto rendered = [&](bool as_text, std::string_view content) -> std::optional<std::string> {
    ChatTemplate trial = *this;
    trial.arguments_as_text_ = as_text;
    const ChatRequest request = trial_of(
        format(R"({}, {"role": "assistant", "content": {}, "tool_calls": [{"id": "{}",)"
               R"( "type": "function", "function": {"name": "trial_call", "arguments": "{\"x\": 1}"}}]})",
               kUserTurn, content, id));
    try {
      return trial.render(request);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  // Without content first: with it some templates never look at the calls.
  for (const std::string_view content : {"null", "\"\""})
    for (const bool as_text : {false, true})
      if (const auto text = rendered(as_text, content)) {
        arguments_as_text_ = as_text;
        return format_of_call(*text, "trial_call");
      }
  return CallFormat::tagged;
}

void ChatTemplate::find_call_form() {
  // Nine letters and digits: Mistral's first templates refuse other ids.
  call_format_ = try_call("a12345678");
  if (call_format_ != CallFormat::tagged || try_call("functions.trial_call:7") != CallFormat::kimi) return;
  call_format_ = CallFormat::kimi;
  shows_call_ids_ = true;
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder, std::string_view wanted) {
  const std::filesystem::path file = folder / "chat_template.jinja";
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const bool has_file = std::filesystem::exists(file), has_config = std::filesystem::exists(config_file);
  boost::json::value config;
  if (has_config)
    config = fourfold::json::parse_file(config_file, {.text_bytes_max = kTokenizerConfigBytesMax});
  if (has_config && !config.is_object())
    fail(Code::bad_checkpoint, "{}: not an object", config_file.string());
  std::optional<ChatTemplate> out;
  if (has_file) {
    out = parse(fourfold::json::read_text_file(file, kTemplateBytesMax), file.string());
  } else if (has_config && config.get_object().contains("chat_template")) {
    const std::string name = config_file.string() + " chat_template";
    const auto source = named_template(config.get_object().at("chat_template"), wanted, config_file.string());
    if (source) out = parse(*source, name);
  }
  if (out && has_config) define_special_tokens(config.get_object(), *out);
  return out;
}

void ChatTemplate::define(std::string name, std::string text) {
  constants_.set(std::move(name), TracedText::own(std::move(text)));
}

TracedText ChatTemplate::render_traced(const ChatRequest& request) const {
  jinja::Dict variables = constants_;
  for (const auto& [key, value] : request.extra.items()) variables.set(key, value);
  variables.set("messages", prepared_messages(request.messages, arguments_as_text_));
  variables.set("tools", request.tools ? *request.tools : jinja::Value(jinja::None{}));
  variables.set("documents", jinja::None{});
  variables.set("add_generation_prompt", request.add_generation_prompt);
  if (request.enable_thinking) {
    variables.set("enable_thinking", *request.enable_thinking);
    // DeepSeek-V3.1's name for it.
    if (request.extra.find("thinking") == nullptr) variables.set("thinking", *request.enable_thinking);
  }
  if (const auto effort = effort_for(request)) variables.set("reasoning_effort", *effort);
  jinja::Evaluator evaluator(parsed_->name, request.limits, request.now ? *request.now : local_now());
  return evaluator.render(parsed_->body, variables);
}

}  // namespace fourfold::text
