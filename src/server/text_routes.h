// The routes about text alone, in vLLM's words: /tokenize, /detokenize, /v1/models.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/api/notes.h"
#include "server/served_model.h"

namespace fourfold::server {

// A prompt, or messages through the chat template, as token ids: the answer piece by piece, empty at its end.
// The model must outlive it. Throws invalid_request.
std::function<std::string()> tokenize_answer(std::string_view body, const ServedModel& model,
                                             api::Notes& notes);
std::string detokenize_answer(std::string_view body, const ServedModel& model, api::Notes& notes);

// OpenAI's fields and Anthropic's, in one answer for both.
std::string models_answer(const ServedModel& model);
// One model by a name of its; empty when it has another.
std::string model_answer(std::string_view name, const ServedModel& model);

}  // namespace fourfold::server
