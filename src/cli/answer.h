// One answer, from prompt tokens to what the terminal shows. Shared by `run` and `chat`.
#pragma once

#include <string>
#include <vector>

#include "cli/generation_options.h"
#include "cli/interrupt.h"
#include "cli/load_model.h"
#include "engine/sequence.h"

namespace fourfold::cli {

// The request the options make of this model; max_tokens and prompt are the caller's. A seed that was not
// given is drawn. Throws invalid_request for options that cannot be read.
engine::Request make_request(const GenerationOptions& options, const OpenModel& model,
                             const text::Tokenizer* tokenizer);

// Room for one sequence of this many tokens.
backend::Capacity room_for(std::int64_t token_count);

struct AnswerOptions {
  const text::Tokenizer* tokenizer = nullptr;  // without one ids are shown
  std::vector<std::string> stops;
  bool split_thinking = false;
  const InterruptWatch* watch = nullptr;
  // What the answer before left in the caches; replaced by what this one leaves.
  engine::CachedTokens* cached = nullptr;
  bool fast = false;  // use it also where prompt rows and generated rows are computed differently
  bool wrap = false;  // at a terminal break lines between words
};

struct Answer {
  std::string thinking, content;
  engine::Finish finish = engine::Finish::running;
  bool stopped = false;  // by a stop string
  std::int64_t prompt_count = 0, token_count = 0;
  std::int64_t reused_count = 0;  // tokens of the prompt that were not run again
  double prompt_seconds = 0;      // until the first token
  double token_seconds = 0;       // for all the others
  engine::DraftCounts drafts;
  // Tokens the host chose although the backend chooses others itself: their logits had to cross.
  std::int64_t host_choices = 0;
};

// Streams content (or ids) to stdout, thinking to stderr, dimmed on a terminal that has styles. Throws io
// when stdout cannot be written.
Answer stream_answer(backend::Prepared& prepared, engine::Request request, const AnswerOptions& options,
                     const Console& console);

// "52 prompt tokens (40 reused), 92.3 tok/s; 64 tokens, 30.5 tok/s; 20 of 31 drafts accepted; 64 chosen by
// the host"
std::string speed_line(const Answer& answer);

}  // namespace fourfold::cli
