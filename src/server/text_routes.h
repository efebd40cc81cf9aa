// The routes about text alone, in vLLM's words: /tokenize, /detokenize, /v1/models.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/api/notes.h"
#include "server/served_model.h"

namespace fourfold::server {

// An answer that is made as it is read: the next piece of it, empty at its end, and what it holds until then.
struct LongAnswer {
  std::function<std::string()> more;
  std::size_t bytes = 0;
};

// A prompt, or messages through the chat template, as token ids. The model must outlive the answer. Throws
// invalid_request.
LongAnswer tokenize_answer(std::string_view body, const ServedModel& model, api::Notes& notes);
std::string detokenize_answer(std::string_view body, const ServedModel& model, api::Notes& notes);

// OpenAI's fields and Anthropic's, in one answer for both.
std::string models_answer(const ServedModel& model);
// One model by a name of its; empty when it has another.
std::string model_answer(std::string_view name, const ServedModel& model);

}  // namespace fourfold::server
