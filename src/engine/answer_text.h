// An answer's tokens as text for people: never half a character, never part of a stop string, and what the
// model thinks apart from what it says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sample/stop_strings.h"
#include "text/detokenizer.h"
#include "text/harmony.h"
#include "text/think_tags.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace fourfold::engine {

struct AnswerPiece {
  std::string thinking = {};
  std::string content = {};
  std::vector<text::ToolEvent> calls = {};  // where the format has them apart from the text (Harmony)
  bool empty() const { return thinking.empty() && content.empty() && calls.empty(); }
};

// Parts a text at </think>: the token of that name anywhere, or the same letters spelled out at the start of
// a line (models do both). A <think> that opens the answer or repeats the prompt's own is not shown, nor is a
// second token </think>.
class ThinkingSplitter {
 public:
  // call_opening: the token of this text ends thinking, since models call tools out of their thoughts; none
  // where it is empty. only_token_ends: letters do not, since a guide waits for the token.
  ThinkingSplitter(const text::Tokenizer& tokenizer, bool starts_thinking, std::string_view call_opening = {},
                   bool only_token_ends = false);

  AnswerPiece push(text::TokenId id, std::string_view text);
  AnswerPiece finish();  // what was held back as a possible </think>
  bool thinking() const { return thinking_; }

 private:
  void think(std::string_view text, AnswerPiece& out);
  void say(std::string_view text, AnswerPiece& out);

  text::ThinkTags tags_;
  std::string call_opening_;
  text::TokenId begin_id_ = -1, end_id_ = -1, call_id_ = -1;
  bool thinking_;
  bool only_token_ends_;
  bool anything_said_ = false;
  bool at_line_start_ = true;
  std::string held_;  // the beginning of a </think> at the start of a line
};

// Whether the prompt leaves the model thinking: its last <think> has no </think> behind it. Asked of the
// prompt itself, since a template may open the block, close it, or leave it to the model.
bool ends_in_thinking(std::span<const text::TokenId> prompt, const text::Tokenizer& tokenizer);

struct AnswerTextOptions {
  std::vector<std::string> stops;
  std::int64_t min_tokens = 0;  // no stop string ends within the text of the first so many
  bool show_stop = false;       // the stop string that ends the answer is part of it
  bool show_special = false;    // control tokens as text
  bool split_thinking = false;
  bool starts_thinking = false;
  text::CallFormat format = text::CallFormat::tagged;
  bool reads_calls = false;  // of the format; they end thinking
  // Where answers are messages in channels: text::last_header of the prompt.
  std::vector<text::TokenId> header = {};
  bool only_token_ends_thinking = false;
};

class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, AnswerTextOptions options);

  AnswerPiece push(text::TokenId id);
  // The rest, when the answer ends without a stop string. cut_off: half a call stays half.
  AnswerPiece finish(bool cut_off = false);
  bool stopped() const { return thinking_stops_.stopped() || content_stops_.stopped(); }
  // The stop string that was found; empty before.
  const std::string& stop() const {
    return thinking_stops_.stopped() ? thinking_stops_.found() : content_stops_.found();
  }
  bool thinking() const { return harmony_ ? harmony_->thinking() : split_thinking_ && splitter_.thinking(); }

 private:
  AnswerPiece split(text::TokenId id, std::string text);
  AnswerPiece through_stops(AnswerPiece piece);

  const text::Tokenizer* tokenizer_;
  text::Detokenizer detokenizer_;
  // Marks of calls are shown to whoever reads the calls, whether they are control tokens or not.
  std::vector<text::TokenId> marks_;
  std::int64_t tokens_before_stops_;
  bool split_thinking_;
  ThinkingSplitter splitter_;
  std::optional<text::HarmonyReader> harmony_;  // in its place
  sample::StopStrings thinking_stops_, content_stops_;
};

}  // namespace fourfold::engine
