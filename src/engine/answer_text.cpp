#include "engine/answer_text.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fourfold::engine {
namespace {

// The text of a token without the tag it is; a broken character before it may have left a replacement.
std::string_view without_tag(std::string_view text, std::string_view tag) {
  return text.ends_with(tag) ? text.substr(0, text.size() - tag.size()) : text;
}

sample::StopStrings::Keep keep_of(const AnswerTextOptions& options) {
  return options.show_stop ? sample::StopStrings::Keep::shown : sample::StopStrings::Keep::hidden;
}

std::vector<text::TokenId> mark_ids(const text::Tokenizer& tokenizer, text::CallFormat format) {
  const text::CallMarks marks = text::marks_of(format);
  std::vector<text::TokenId> out;
  for (const std::string_view mark :
       {marks.section_open, marks.section_close, marks.call_open, marks.call_close, marks.name_close,
        marks.key_open, marks.key_close, marks.value_open, marks.value_close})
    if (const auto id = mark.empty() ? std::nullopt : tokenizer.added_token(mark)) out.push_back(*id);
  return out;
}

}  // namespace

ThinkingSplitter::ThinkingSplitter(const text::Tokenizer& tokenizer, bool starts_thinking,
                                   std::string_view call_opening, bool only_token_ends)
    : tags_(text::think_tags(tokenizer)),
      call_opening_(call_opening),
      begin_id_(tokenizer.added_token(tags_.begin).value_or(-1)),
      end_id_(tokenizer.added_token(tags_.end).value_or(-1)),
      call_id_(call_opening.empty() ? -1 : tokenizer.added_token(call_opening).value_or(-1)),
      thinking_(starts_thinking),
      only_token_ends_(only_token_ends) {}

AnswerPiece ThinkingSplitter::push(text::TokenId id, std::string_view text) {
  AnswerPiece out;
  if (id == begin_id_ && (thinking_ || !anything_said_)) {
    thinking_ = true;
    think(without_tag(text, tags_.begin), out);
  } else if (id == end_id_ && thinking_) {
    think(without_tag(text, tags_.end), out);
    out.thinking += std::exchange(held_, {});
    thinking_ = false;
  } else if (id == call_id_ && thinking_) {
    think(without_tag(text, call_opening_), out);
    out.thinking += std::exchange(held_, {});
    thinking_ = false;
    say(call_opening_, out);
  } else if (id == end_id_) {
    say(without_tag(text, tags_.end), out);
  } else if (thinking_) {
    think(text, out);
  } else {
    say(text, out);
  }
  return out;
}

void ThinkingSplitter::think(std::string_view text, AnswerPiece& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!only_token_ends_ && (at_line_start_ || !held_.empty()) && text[i] == tags_.end[held_.size()]) {
      held_ += text[i];
      at_line_start_ = false;
      if (held_ != tags_.end) continue;
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
  const text::ThinkTags tags = text::think_tags(tokenizer);
  const auto begin_id = tokenizer.added_token(tags.begin);
  const auto end_id = tokenizer.added_token(tags.end);
  for (std::size_t i = prompt.size(); i > 0; --i) {
    if (end_id && prompt[i - 1] == *end_id) return false;
    if (begin_id && prompt[i - 1] == *begin_id) return true;
    if (tokenizer.is_special(prompt[i - 1])) return false;  // what is before it is somebody else's turn
  }
  return false;
}

AnswerText::AnswerText(const text::Tokenizer& tokenizer, AnswerTextOptions options)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer, {.skip_special = !options.show_special}),
      marks_(options.reads_calls ? mark_ids(tokenizer, options.format) : std::vector<text::TokenId>{}),
      tokens_before_stops_(options.min_tokens),
      split_thinking_(options.split_thinking),
      splitter_(tokenizer, options.starts_thinking,
                options.reads_calls ? text::marks_of(options.format).opening() : std::string_view{},
                options.only_token_ends_thinking),
      thinking_stops_(options.stops, keep_of(options)),
      content_stops_(std::move(options.stops), keep_of(options)) {
  if (split_thinking_ && !options.header.empty())
    harmony_.emplace(tokenizer, options.header, options.reads_calls);
}

AnswerPiece AnswerText::push(text::TokenId id) {
  const bool mark = std::ranges::find(marks_, id) != marks_.end();
  std::string text = mark ? detokenizer_.finish() : detokenizer_.push(id);
  if (mark) text += tokenizer_->token_bytes(id);
  --tokens_before_stops_;
  return through_stops(split(id, std::move(text)));
}

AnswerPiece AnswerText::split(text::TokenId id, std::string text) {
  if (!split_thinking_) return {.content = std::move(text)};
  if (!harmony_) return splitter_.push(id, text);
  text::HarmonyPiece piece = harmony_->push(id, text);
  return {std::move(piece.thinking), std::move(piece.content), std::move(piece.calls)};
}

AnswerPiece AnswerText::finish(bool cut_off) {
  if (stopped()) return {};
  // No token has this id: the rest belongs to whatever is being said.
  AnswerPiece rest = split(-2, detokenizer_.finish());
  rest.thinking += splitter_.finish().thinking;
  if (harmony_) {
    text::HarmonyPiece last = harmony_->finish(cut_off);
    rest.content += last.content;
    rest.calls.insert(rest.calls.end(), last.calls.begin(), last.calls.end());
  }
  AnswerPiece out = through_stops(std::move(rest));
  if (stopped()) return out;
  out.thinking += thinking_stops_.finish();
  out.content += content_stops_.finish();
  return out;
}

AnswerPiece AnswerText::through_stops(AnswerPiece piece) {
  AnswerPiece out;
  const bool may_end = tokens_before_stops_ < 0;
  out.thinking = thinking_stops_.push(piece.thinking, may_end);
  if (thinking_stops_.stopped()) return out;
  // A stop string does not reach from thinking into speaking: what was held back for one is shown before it.
  if (split_thinking_ && !thinking()) out.thinking += thinking_stops_.finish();
  out.content = content_stops_.push(piece.content, may_end);
  if (content_stops_.stopped()) return out;
  // Nor into a call, nor out of one message into the next.
  if (harmony_ && !harmony_->speaking()) out.content += content_stops_.finish();
  out.calls = std::move(piece.calls);
  return out;
}

}  // namespace fourfold::engine
