// How an answer is to be made, whatever protocol asks: sampling, lengths, stops, how many, streamed or whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sample/params.h"
#include "server/api/fields.h"
#include "server/served_model.h"

namespace fourfold::server::api {

struct Prompt;  // conversation.h

struct Generation {
  sample::Params params;
  std::optional<std::int64_t> max_tokens;  // not given: what fits the context
  std::string max_tokens_field;            // what the request calls it
  std::int64_t answer_count = 1;           // of one prompt
  std::vector<std::string> stops;
  std::vector<text::TokenId> stop_ids;
  std::string cache_salt;
  bool stream = false;
  bool usage_at_end = false, usage_always = false;  // in a stream
  bool logprobs = false;
  int top_logprobs = 0;
  std::int64_t min_tokens = 0;
  bool echo = false;                            // the prompt is part of the answer, of completions
  std::optional<int> prompt_logprobs;           // alternatives to report with each token of the prompt
  std::optional<std::int64_t> truncate_prompt;  // to its last so many tokens; -1: to what fits
  bool show_stop = false;                       // the stop string that ended the answer, as part of it
  bool show_special = false;                    // control tokens as text
  bool token_ids = false;                       // beside the text
  bool tokens_as_ids = false;                   // in log-probabilities: "token_id:5" in place of its text
};

// The fields OpenAI's two completion protocols have in common, with vLLM's additions.
Generation read_generation(Fields& fields, const ServedModel& model);

// temperature, top_p, top_k and the like on top of the model's defaults; for every protocol.
void read_sampling(Fields& fields, const ServedModel& model, Generation& out);
void read_max_tokens(Fields& fields, std::string_view name, Generation& out);
// A string or a list of strings.
void read_stops(Fields& fields, std::string_view name, Generation& out);

// 404 unless `model` is absent, "default" or one of the served names.
void require_model(Fields& fields, const ServedModel& model);

// Whether the prompt's tokens are measured for this request, and with how many alternatives: asked for as
// such, or by an echo with log-probabilities.
std::optional<int> prompt_alternatives(const Generation& generation);
// Refuses more of them than fit one answer, or one event of a stream; gives about how many bytes they are.
// token_count: of all prompts together.
std::size_t require_measurable(std::int64_t token_count, const Generation& generation);

// As truncate_prompt says, from the left; what it drops is noted.
void truncate_prompt(std::vector<text::TokenId>& ids, const Generation& generation, const ServedModel& model,
                     Notes& notes);

// How many tokens the answer to this prompt may have at most. Refuses a prompt that leaves no room for one.
std::int64_t answer_room(const Prompt& prompt, const Generation& generation, const ServedModel& model);
// Refuses min_tokens of more than the answer may have.
void require_long_enough(std::int64_t most, const Generation& generation);

// Refuses a prompt whose bytes cannot be tokens that fit the context, before it is tokenised.
void require_near_context(std::size_t prompt_bytes, const std::string& field, const ServedModel& model);

// A list of token ids, each with a meaning to this model.
std::vector<text::TokenId> read_ids(const std::vector<Json>& list, const std::string& name,
                                    const ServedModel& model);

}  // namespace fourfold::server::api
