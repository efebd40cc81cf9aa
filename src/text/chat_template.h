// The prompt a chat model expects: renders the template that comes with a checkpoint over messages and tools,
// exactly as Hugging Face's apply_chat_template does. The template is read from the checkpoint, never built
// in.
#pragma once

#include <array>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/evaluator.h"
#include "text/jinja/value.h"
#include "text/tool_format.h"

namespace fourfold::text {

// How long a model is asked to think, weakest first: what the variable reasoning_effort may say.
inline constexpr std::array<std::string_view, 7> kEfforts{"none", "minimal", "low", "medium",
                                                          "high", "xhigh",   "max"};

struct ChatRequest {
  jinja::Value messages = {};              // a list of dicts: role, content, tool_calls ...
  std::optional<jinja::Value> tools = {};  // a list of function descriptions
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking = {};  // undefined in the template when not given
  jinja::Dict extra = {};                    // further variables (chat_template_kwargs of a request)
  std::optional<std::tm> now = {};           // what strftime_now sees; the clock when not given
  jinja::Limits limits = {};
};

// JSON text of a request to a value; throws invalid_request naming `what`.
jinja::Value parse_chat_json(std::string_view json, std::string_view what);

// Of tokenizer_config.json.
inline constexpr std::size_t kTokenizerConfigBytesMax = std::size_t{64} << 20;

class ChatTemplate {
 public:
  // `name` stands in messages, as in "chat_template.jinja". Throws bad_checkpoint with the line of a syntax
  // error.
  static ChatTemplate parse(std::string_view source, std::string_view name);

  // chat_template.jinja, or the member chat_template of tokenizer_config.json (a string, or a list of named
  // templates of which `wanted` is taken: "default", or "tool_use" where tools are given and it exists).
  // Special tokens named in tokenizer_config.json (bos_token ...) become variables. Nothing when the folder
  // has no template.
  static std::optional<ChatTemplate> load(const std::filesystem::path& model_folder,
                                          std::string_view wanted = "default");

  // Throws invalid_request with the template's line: an exception the template raises, an undefined value, a
  // limit.
  TracedText render_traced(const ChatRequest& request) const;
  std::string render(const ChatRequest& request) const { return render_traced(request).bytes(); }

  // Clients send the arguments of a tool call as JSON text, most templates want the object. True for a
  // template that only works with text (DeepSeek-V3's); found out by trying when it is parsed. Otherwise
  // render() hands over objects.
  bool wants_arguments_as_text() const { return arguments_as_text_; }

  // Whether system turns may stand behind the first turn, the user's or the model's, and are rendered where
  // they stand: some templates refuse them, some pass over them. Found out by trying, too.
  bool takes_later_system_turns() const { return later_system_turns_; }

  // Whether a turn of the user may stand behind another one, and behind results of tools: Mistral's template
  // refuses both. Found out by trying, too.
  bool takes_users_in_a_row() const { return users_in_a_row_; }
  bool takes_users_behind_results() const { return users_behind_results_; }

  // How it writes a call of a tool; found out by trying. Tagged where it shows calls in another way, or none.
  CallFormat call_format() const { return call_format_; }
  // Kimi's alone: whether it shows a call by the id it comes with, as Kimi-K2-Thinking's does. The first one
  // numbers the calls of a turn itself.
  bool shows_call_ids() const { return shows_call_ids_; }

  // Those of kEfforts that it takes, where it refuses others (Mistral's takes none and high); found out by
  // trying, too. gpt-oss's takes any word, and its models know three. Empty: all are handed over as they are.
  const std::vector<std::string_view>& efforts() const { return efforts_; }

  const std::string& source() const { return parsed_->source; }

  // A text every rendering sees, such as bos_token; it counts as the template's own.
  void define(std::string name, std::string text);

 private:
  struct Parsed {
    std::string name, source;
    jinja::Body body;
  };
  void find_call_form();
  // How it writes a call with this id, and whether arguments must be text for that.
  CallFormat try_call(std::string_view id);
  void find_system_form();
  void find_user_form();
  void find_efforts();
  bool renders(const ChatRequest& request) const;
  // What it is to see as reasoning_effort; nothing: what the request has, or the template's own default.
  std::optional<std::string_view> effort_for(const ChatRequest& request) const;

  std::shared_ptr<const Parsed> parsed_;
  jinja::Dict constants_;
  bool arguments_as_text_ = false;
  bool later_system_turns_ = false;
  bool users_in_a_row_ = true, users_behind_results_ = true;
  CallFormat call_format_ = CallFormat::tagged;
  bool shows_call_ids_ = false;
  std::vector<std::string_view> efforts_;
};

}  // namespace fourfold::text
