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
  std::string call_id = {};                  // tool: which call it answers
};

struct Conversation {
  std::vector<Turn> turns;
  std::optional<Json> tools;  // for the template
  bool add_generation_prompt = true;
  // The last turn is the assistant's and the answer goes on with it.
  bool continue_last = false;
  std::optional<bool> enable_thinking;
  text::jinja::Dict template_variables;
};

struct Prompt {
  std::vector<text::TokenId> ids;
  std::string text = {};         // what an answer that echoes begins with
  bool starts_thinking = false;  // the prompt itself opens <think>
};

// Refuses tool results that answer no call.
void require_answered(const std::vector<Turn>& turns, const std::string& field);
// The text of a JSON object, from a text that should be one or the object itself; refuses anything else.
std::string read_arguments(const Json* value, const std::string& field);
// A string, or the texts of {"type": "text", "text": ...} parts put together; `types` are the names such
// parts may have.
std::string read_content(const Json& value, const std::string& field,
                         std::initializer_list<std::string_view> types, Notes& notes);

// The messages of chat completions.
std::vector<Turn> read_messages(Fields& fields);
// enable_thinking, reasoning_effort, chat_template_kwargs, add_generation_prompt.
void read_template_fields(Fields& fields, Conversation& out);

// A template's errors begin with its file; where that lies is nobody's business.
std::string without_folder(std::string message);

// A prompt that is to be answered and cannot fit the context is refused before it is tokenised.
enum class PromptUse { answer, count };
Prompt render_prompt(const Conversation& conversation, const ServedModel& model,
                     PromptUse use = PromptUse::answer);

}  // namespace fourfold::server::api
