// What was said so far, in one form for all protocols, and the prompt it becomes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/tools.h"
#include "server/served_model.h"

namespace fourfold::server::api {

struct Call {
  std::string id, name;
  std::string arguments;  // the text of a JSON object
};

struct Turn {
  std::string role;  // system, user, assistant or tool
  std::string content = {};
  std::optional<std::string> thinking = {};  // assistant
  std::vector<Call> calls = {};              // assistant
  // Ids of calls that became words of the content, for results that answer them.
  std::vector<std::string> broken_calls = {};
  std::string call_id = {};  // tool: which call it answers
};

struct Conversation {
  std::string field = "messages";  // of the request: what an error about the whole of it names
  std::vector<Turn> turns = {};
  std::optional<Json> tools = {};  // for the template
  bool add_generation_prompt = true;
  // The last turn is the assistant's and the answer goes on with it.
  bool continue_last = false;
  std::optional<bool> enable_thinking = {};
  text::jinja::Dict template_variables = {};
};

struct Prompt {
  std::string field;  // of the request
  std::vector<text::TokenId> ids;
  std::string text = {};         // what an answer that echoes begins with
  bool starts_thinking = false;  // the prompt itself opens <think>
  bool in_message = false;       // Harmony: the answer goes on with a message, and has no header
};

// Refuses tool results that answer no call.
void require_answered(const std::vector<Turn>& turns, const std::string& field);
// What is shown of a call whose arguments are no JSON object, to the model and to clients that only take
// objects.
std::string words_of_broken_call(std::string_view name, std::string_view arguments);
// Adds a call to the turn that made it. `arguments` is the text of a JSON object or the object itself; a text
// that is none, as of a call that was cut off, becomes words of the turn, for no template could show it as a
// call.
void add_call(Turn& turn, Call call, const Json* arguments, const std::string& field);

// What becomes of a part that is no text: what the user shows must be seen, so that the request is refused;
// for what a tool returned, or the model, a word replaces it.
enum class OtherParts { refuse, name };
// A string, or the texts of {"type": "text", "text": ...} parts put together; `types` are the names such
// parts may have.
std::string read_content(const Json& value, const std::string& field,
                         std::initializer_list<std::string_view> types, Notes& notes,
                         OtherParts others = OtherParts::refuse);
// "[image omitted: this model reads text]", and a note of it; or a refusal.
std::string other_part(const std::string& type, const std::string& field, Notes& notes, OtherParts others);

// "none" switches thinking off; the template sees all of them as reasoning_effort.
std::optional<std::string> read_effort(Fields& fields, std::string_view name, Conversation& out);
// low, medium or high; for the template, as a variable of that name.
std::optional<std::string> read_verbosity(Fields& fields, Conversation& out);

// The messages of chat completions.
std::vector<Turn> read_messages(Fields& fields);
// enable_thinking, reasoning_effort, chat_template_kwargs, add_generation_prompt.
void read_template_fields(Fields& fields, Conversation& out);

// A template's errors begin with its file; where that lies is not for clients to know.
std::string without_folder(std::string message);

// Text that is only to be counted is bounded too: its tokens take several times its memory.
inline constexpr std::size_t kCountableBytesMax = std::size_t{8} << 20;
void require_countable(std::size_t bytes, const std::string& field);

// A prompt that is to be answered and cannot fit the context is refused before it is tokenised.
enum class PromptUse { answer, count };
Prompt render_prompt(const Conversation& conversation, const ServedModel& model,
                     PromptUse use = PromptUse::answer);

}  // namespace fourfold::server::api
