// `fourfold chat`: a conversation, line by line, with a line editor at a terminal. Answers go to stdout;
// prompt, thinking (dimmed), speed and notices to stderr. Ctrl-C stops an answer; at the prompt a second one,
// or Ctrl-D, ends the program.
#pragma once

#include <filesystem>
#include <string>

#include "cli/console.h"
#include "cli/generation_options.h"

namespace fourfold::cli {

struct ChatOptions {
  std::string model;
  std::optional<std::int64_t> context;  // tokens of a conversation there is room for
  // Go on from what generated rows left also where the answer may then be another one (a GPU).
  bool fast = false;
  bool no_history = false;  // keep nothing of what is typed
  GenerationOptions generation;
};

// Where what is typed is kept: FOURFOLD_HISTORY, else fourfold/chat_history in XDG_STATE_HOME or
// ~/.local/state. Empty for FOURFOLD_HISTORY=off, or where there is no home.
std::filesystem::path chat_history_file();

// Reads lines from the descriptor; without a terminal, too.
int run_chat(const ChatOptions& options, int input, const Console& console);

}  // namespace fourfold::cli
