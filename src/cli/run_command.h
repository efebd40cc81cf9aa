// `fourfold run`: one answer on stdout and nothing else; speed, thinking and notices on stderr.
#pragma once

#include <string>

#include "cli/console.h"
#include "cli/generation_options.h"

namespace fourfold::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;        // "-" reads it from stdin
  bool stdin_may_prompt = false;            // without a prompt: what is piped in is one
  bool raw = false;                         // continue the prompt instead of answering it
  std::string ids;                          // the prompt as token ids, "1,2,3"; the answer is ids, too
  std::optional<std::int64_t> max_context;  // tokens of prompt and answer there is room for
  GenerationOptions generation;
};

int run_run(const RunOptions& options, const Console& console);

}  // namespace fourfold::cli
