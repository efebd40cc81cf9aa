// gpt-oss's answers: messages in channels, apart by control tokens (OpenAI's "Harmony" format).
//
//   <|channel|>analysis<|message|>THOUGHT<|end|><|start|>assistant<|channel|>final<|message|>TEXT<|return|>
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
//
// The channel analysis is thinking; a message to a tool is a call; all else is said. The receiver may stand
// before the channel as well. Read token by token, so that the same letters in a text are text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/call_writer.h"
#include "text/tokenizer.h"

namespace fourfold::text {

struct HarmonyPiece {
  std::string thinking = {}, content = {};
  std::vector<ToolEvent> calls = {};  // without text
};

class HarmonyReader {
 public:
  // The answer begins where the prompt ends: behind "<|start|>assistant", or within a message.
  // reads_calls: otherwise what is written to a tool is said.
  HarmonyReader(const Tokenizer& tokenizer, std::span<const TokenId> prompt, bool reads_calls);

  // `text`: of the token, and of what was held before it; of control tokens it is not used.
  HarmonyPiece push(TokenId id, std::string_view text);
  // cut_off: a call that is open stays so.
  HarmonyPiece finish(bool cut_off);
  bool thinking() const { return part_ == Part::thinking; }
  bool speaking() const { return part_ == Part::content; }

 private:
  enum class Part { header, thinking, content, call };

  void add(std::string_view text, HarmonyPiece& out);
  void begin_header() { part_ = Part::header, header_.clear(), loose_.clear(); }
  void begin_message();
  void end_message();

  TokenId start_, channel_, constrain_, message_;
  std::vector<TokenId> ends_;
  bool reads_calls_;
  Part part_ = Part::header;
  std::string header_;  // with <|channel|> as letters
  std::string loose_;   // what the answer wrote of it, in case it is none
  Part last_ = Part::header;
  bool apart_ = false;  // two messages of one kind in a row have a blank line between them
  CallWriter calls_;
  std::string json_;
};

// Of a prompt, what a HarmonyReader needs: its last message without the text. Empty where the tokenizer or
// the prompt knows no such messages.
std::vector<TokenId> last_header(std::span<const TokenId> prompt, const Tokenizer& tokenizer);

}  // namespace fourfold::text
