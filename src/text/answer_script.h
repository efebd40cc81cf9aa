// Answers that are known beforehand, for a model whose weights say them (checkpoint/write/scripted_model.h):
// what agents and their servers are tested with. The template itself writes the answers, so that a client
// that sends one back sends the same tokens; what comes out is a table over token ids, free of texts.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fourfold::text {

struct ScriptedCall {
  std::string name;
  jinja::Value arguments;  // a dict
};

struct ScriptedAnswer {
  std::string text;
  std::vector<ScriptedCall> calls;
};

struct AnswerScript {
  std::string thought;  // thought before every answer, where thinking is not switched off
  // One answer after another, then from the front: where the prompt shows tools, and where it shows none.
  // With one list empty the other answers both.
  std::vector<ScriptedAnswer> with_tools, without_tools;
  // The tokens that end an answer, as the template writes them: <|im_end|> where none is given.
  std::vector<std::string> ends = {"<|im_end|>"};
};

// {"thought": "...", "with_tools": [{"text": "...", "calls": [{"name": "...", "arguments": {}}]}, ...],
// "without_tools": [...], "ends": ["..."]}. Throws invalid_request naming `what`.
AnswerScript parse_answer_script(std::string_view json, std::string_view what);

// What a model that follows the script has to know. It sees the last four tokens and a phase, which is 0
// before any turn and changes behind certain tokens: at the end of an answer, where tools are shown, and
// within answers that repeat themselves.
struct ScriptTable {
  using Window = std::array<TokenId, 4>;  // the newest last
  struct Step {
    Window seen;
    int phase;
    TokenId next;
  };
  struct Turn {  // from here on the phase is this one
    Window seen;
    int phase;
  };
  std::vector<Step> steps;
  std::vector<Turn> turns;
};

// Throws invalid_request where four tokens and the phase cannot say what follows: an answer that repeats
// itself, or two that are alike.
ScriptTable make_script_table(const AnswerScript& script, const ChatTemplate& chat_template,
                              const Tokenizer& tokenizer, std::span<const TokenId> ends);

}  // namespace fourfold::text
