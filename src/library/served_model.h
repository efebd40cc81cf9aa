// What the protocols know of an opened model: its tokenizer, its template, its limits and defaults. For
// `fourfold serve`, and for requests that a program which embeds the engine makes in the same words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "library/open_model.h"
#include "server/served_model.h"

namespace fourfold::library {

struct ServedOptions {
  std::vector<std::string> names = {};  // empty: the folder's
  std::int64_t context = 0;             // tokens of prompt and answer of one request
  bool strict = false;                  // a request that would not get all it asks is refused
  int store_responses_mb = 64;          // responses kept for previous_response_id; 0: none
};

// Without forms for structured output: they take a while with a large vocabulary, and
// server::api::prepare_forms adds them.
server::ServedModel served_model(const OpenModel& model, text::Tokenizer tokenizer,
                                 const ServedOptions& options);

}  // namespace fourfold::library
