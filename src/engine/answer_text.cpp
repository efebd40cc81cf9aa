#include "engine/answer_text.h"

#include <utility>

#include "text/tool_format.h"

namespace fourfold::engine {
namespace {

constexpr std::string_view kBegin = "<think>";
constexpr std::string_view kEnd = "</think>";

// The text of a token without the tag it is; a broken character before it may have left a replacement.
std::string_view without_tag(std::string_view text, std::string_view tag) {
  return text.ends_with(tag) ? text.substr(0, text.size() - tag.size()) : text;
}

sample::StopStrings::Keep keep_of(const AnswerTextOptions& options) {
  return options.show_stop ? sample::StopStrings::Keep::shown : sample::StopStrings::Keep::hidden;
}

}  // namespace

ThinkingSplitter::ThinkingSplitter(const text::Tokenizer& tokenizer, bool starts_thinking,
                                   bool calls_end_thinking, bool only_token_ends)
    : begin_id_(tokenizer.added_token(kBegin).value_or(-1)),
      end_id_(tokenizer.added_token(kEnd).value_or(-1)),
      call_id_(calls_end_thinking ? tokenizer.added_token(text::kCallOpen).value_or(-1) : -1),
      thinking_(starts_thinking),
      only_token_ends_(only_token_ends) {}

AnswerPiece ThinkingSplitter::push(text::TokenId id, std::string_view text) {
  AnswerPiece out;
  if (id == begin_id_ && (thinking_ || !anything_said_)) {
    thinking_ = true;
    think(without_tag(text, kBegin), out);
  } else if (id == end_id_ && thinking_) {
    think(without_tag(text, kEnd), out);
    out.thinking += std::exchange(held_, {});
    thinking_ = false;
  } else if (id == call_id_ && thinking_) {
    think(without_tag(text, text::kCallOpen), out);
    out.thinking += std::exchange(held_, {});
    thinking_ = false;
    say(text::kCallOpen, out);
  } else if (id == end_id_) {
    say(without_tag(text, kEnd), out);
  } else if (thinking_) {
    think(text, out);
  } else {
    say(text, out);
  }
  return out;
}

void ThinkingSplitter::think(std::string_view text, AnswerPiece& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!only_token_ends_ && (at_line_start_ || !held_.empty()) && text[i] == kEnd[held_.size()]) {
      held_ += text[i];
      at_line_start_ = false;
      if (held_ != kEnd) continue;
      held_.clear();
      thinking_ = false;
      return say(text.substr(i + 1), out);
    }
    out.thinking += std::exchange(held_, {});
    out.thinking += text[i];
    at_line_start_ = text[i] == '\n';
  }
}

// The empty lines a model puts between thinking and speaking are not part of either.
void ThinkingSplitter::say(std::string_view text, AnswerPiece& out) {
  if (!anything_said_) {
    const std::size_t first = text.find_first_not_of("\r\n");
    text = first == std::string_view::npos ? std::string_view{} : text.substr(first);
  }
  if (text.empty()) return;
  anything_said_ = true;
  out.content += text;
}

AnswerPiece ThinkingSplitter::finish() { return {std::exchange(held_, {}), {}}; }

bool ends_in_thinking(std::span<const text::TokenId> prompt, const text::Tokenizer& tokenizer) {
  const auto begin_id = tokenizer.added_token(kBegin);
  const auto end_id = tokenizer.added_token(kEnd);
  for (std::size_t i = prompt.size(); i > 0; --i) {
    if (end_id && prompt[i - 1] == *end_id) return false;
    if (begin_id && prompt[i - 1] == *begin_id) return true;
  }
  return false;
}

AnswerText::AnswerText(const text::Tokenizer& tokenizer, AnswerTextOptions options)
    : detokenizer_(tokenizer, {.skip_special = !options.show_special}),
      tokens_before_stops_(options.min_tokens),
      split_thinking_(options.split_thinking),
      splitter_(tokenizer, options.starts_thinking, options.calls_end_thinking,
                options.only_token_ends_thinking),
      thinking_stops_(options.stops, keep_of(options)),
      content_stops_(std::move(options.stops), keep_of(options)) {}

AnswerPiece AnswerText::push(text::TokenId id) {
  std::string text = detokenizer_.push(id);
  --tokens_before_stops_;
  return through_stops(split_thinking_ ? splitter_.push(id, text) : AnswerPiece{{}, std::move(text)});
}

AnswerPiece AnswerText::finish() {
  if (stopped()) return {};
  // No token has this id: the rest belongs to whatever is being said.
  std::string text = detokenizer_.finish();
  AnswerPiece rest = split_thinking_ ? splitter_.push(-2, text) : AnswerPiece{{}, std::move(text)};
  rest.thinking += splitter_.finish().thinking;
  AnswerPiece out = through_stops(rest);
  if (stopped()) return out;
  out.thinking += thinking_stops_.finish();
  out.content += content_stops_.finish();
  return out;
}

AnswerPiece AnswerText::through_stops(const AnswerPiece& piece) {
  AnswerPiece out;
  const bool may_end = tokens_before_stops_ < 0;
  out.thinking = thinking_stops_.push(piece.thinking, may_end);
  if (thinking_stops_.stopped()) return out;
  // A stop string does not reach from thinking into speaking: what was held back for one is shown before it.
  if (split_thinking_ && !splitter_.thinking()) out.thinking += thinking_stops_.finish();
  out.content = content_stops_.push(piece.content, may_end);
  return out;
}

}  // namespace fourfold::engine
