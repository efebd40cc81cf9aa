#include "text/qwen_calls.h"

#include <initializer_list>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/jinja/json_value.h"
#include "text/jinja/python_text.h"
#include "text/tool_format.h"

namespace fourfold::text {
namespace {

constexpr std::size_t kNameBytesMax = 512;
constexpr std::size_t kTagSpacesMax = 8;
constexpr int kBrokenCallsMax = 16;  // in JSON, at the end of an answer: each is read to the end
constexpr std::string_view kSpace = " \t\r\n";

enum class Found { no, perhaps, yes };
struct Tag {
  Found found = Found::no;
  std::size_t begin = std::string_view::npos, end = 0;
  std::string_view tag;
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

// `tag` at the start of the text, where spaces may stand around its words and signs.
Tag match_tag(std::string_view text, std::string_view tag) {
  std::size_t at = 0, spaces = 0;
  for (std::size_t i = 0; i < tag.size(); ++i) {
    const bool inside_word = i > 0 && is_letter(tag[i]) && is_letter(tag[i - 1]);
    while (i > 0 && !inside_word && at < text.size() && text[at] == ' ' && ++spaces <= kTagSpacesMax) ++at;
    if (at == text.size()) return {Found::perhaps, 0, at, tag};
    if (text[at++] != tag[i]) return {};
  }
  return {Found::yes, 0, at, tag};
}

// The first of the tags in the text; or where one may just be beginning.
Tag find_tag(std::string_view text, std::initializer_list<std::string_view> tags) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    Tag best;
    for (const std::string_view tag : tags) {
      const Tag match = match_tag(text.substr(at), tag);
      if (match.found > best.found) best = match;
    }
    if (best.found == Found::no) continue;
    best.begin += at;
    best.end += at;
    return best;
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<jinja::Value> parsed_object(std::string_view text) {
  try {
    jinja::Value value = jinja::parse_json(text, "call", jinja::JsonRules::answer);
    if (value.is_dict()) return value;
  } catch (const Error&) {
  }
  return std::nullopt;
}

// The text of a member of an object in sound JSON, so that no number in it is rounded; empty where the member
// is not there, or has its name written with escapes.
std::string_view member_text(std::string_view object, std::string_view name) {
  std::string_view key, found;
  std::size_t begin = std::string_view::npos;
  int depth = 0;
  for (std::size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      const std::size_t first = ++i;
      for (; object[i] != '"'; ++i)
        if (object[i] == '\\') ++i;
      if (begin == std::string_view::npos) key = object.substr(first, i - first);
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ':' && depth == 1) begin = i + 1;
    const bool ends = (c == ',' && depth == 1) || (c == '}' && depth == 0);
    if (!ends || begin == std::string_view::npos) continue;
    if (key == name) found = trimmed(object.substr(begin, i - begin));
    begin = std::string_view::npos;
  }
  return found;
}

}  // namespace

std::vector<ToolEvent> QwenCallParser::push(std::string_view text) {
  held_ += text;
  while (step()) {
  }
  return out_.take();
}

std::vector<ToolEvent> QwenCallParser::finish(bool cut_off) {
  for (int i = 0; i < kBrokenCallsMax && state_ == State::json && !cut_off; ++i) end_json();
  switch (state_) {
    case State::content: out_.say(held_); break;
    case State::opened: out_.say(opening_ + held_); break;
    case State::json: out_.say(opening_ + held_); break;
    case State::name: out_.say(std::string(kFunctionOpen) + held_); break;
    case State::value:
      // A tag that was only beginning is part of the value.
      if (cut_off) break;
      out_.add_value(held_.ends_with('\n') ? std::string_view(held_).substr(0, held_.size() - 1)
                                           : std::string_view(held_));
      out_.end_value();
      break;
    case State::parameters:
    case State::key: break;
  }
  held_.clear();
  if (in_call() && !cut_off) out_.end_call();
  out_.leave_call();
  out_.finish();
  return out_.take();
}

bool QwenCallParser::step() {
  switch (state_) {
    case State::content: return step_content();
    case State::opened: return step_opened();
    case State::json: return step_json();
    case State::name: return step_name();
    case State::parameters: return step_parameters();
    case State::key: return step_key();
    case State::value: return step_value();
  }
  return false;
}

bool QwenCallParser::step_content() {
  if (held_.empty()) return false;
  const Tag tag = find_tag(held_, {kCallOpen, kFunctionOpen, kCallClose});
  const std::size_t known = tag.found == Found::no ? held_.size() : tag.begin;
  out_.say(std::string_view(held_).substr(0, known));
  if (tag.found != Found::yes) {
    held_.erase(0, known);
    return false;
  }
  const std::string spelling = held_.substr(tag.begin, tag.end - tag.begin);
  held_.erase(0, tag.end);
  if (tag.tag == kFunctionOpen) {
    state_ = State::name;
  } else if (tag.tag == kCallOpen) {
    state_ = State::opened;
    opening_ = spelling;
  } else if (!out_.calls_seen()) {
    out_.say(spelling);  // closes nothing
  }
  return true;
}

bool QwenCallParser::step_opened() {
  const std::size_t first = std::min(held_.find_first_not_of(kSpace), held_.size());
  opening_ += held_.substr(0, first);
  held_.erase(0, first);
  if (held_.empty()) return false;
  if (held_.front() == '{') {
    state_ = State::json;
    searched_ = 0;
    in_string_ = false;
    return true;
  }
  const Tag function = match_tag(held_, kFunctionOpen), close = match_tag(held_, kCallClose);
  if (function.found == Found::yes || close.found == Found::yes) {
    held_.erase(0, function.found == Found::yes ? function.end : close.end);
    state_ = function.found == Found::yes ? State::name : State::content;
    return true;
  }
  if (function.found == Found::perhaps || close.found == Found::perhaps) return false;
  out_.say(opening_);
  state_ = State::content;
  return true;
}

// Up to the closing tag; inside a string it is a part of the string.
bool QwenCallParser::step_json() {
  // What was searched before is not searched again: pieces are small, and a call may be very long.
  for (; searched_ < held_.size(); ++searched_) {
    const char c = held_[searched_];
    if (in_string_ && c == '\\') {
      if (searched_ + 1 == held_.size()) return false;
      ++searched_;
    } else if (c == '"') {
      in_string_ = !in_string_;
    } else if (c == '<' && !in_string_) {
      const Tag close = match_tag(std::string_view(held_).substr(searched_), kCallClose);
      if (close.found == Found::perhaps) return false;
      if (close.found == Found::no) continue;
      const std::string body = held_.substr(0, searched_);
      if (!json_call(body)) out_.say(opening_ + held_.substr(0, searched_ + close.end));
      held_.erase(0, searched_ + close.end);
      state_ = State::content;
      return true;
    }
  }
  return false;
}

// At the end of the answer: a call that lacks its closing tag, or one whose string does not end, so that a
// tag that was meant to close it seemed to stand in the string.
void QwenCallParser::end_json() {
  state_ = State::content;
  if (json_call(held_)) {
    held_.clear();
    return;
  }
  const Tag close = find_tag(held_, {kCallClose});
  const std::size_t end = close.found == Found::yes ? close.end : held_.size();
  out_.say(opening_ + held_.substr(0, end));
  held_.erase(0, end);
  while (step()) {
  }
}

bool QwenCallParser::json_call(std::string_view text) {
  const auto call = parsed_object(text);
  const jinja::Value* name = call ? call->dict()->find(kCallName) : nullptr;
  if (name == nullptr || !name->is_text() || name->text().empty()) return false;
  const jinja::Value* given = call->dict()->find(kCallArguments);
  std::string arguments = "{}";
  if (given != nullptr && given->is_dict()) {
    arguments = member_text(text, kCallArguments);
    if (arguments.empty()) arguments = jinja::to_json(*given);
  }
  // Some models write the text of the object instead.
  if (given != nullptr && given->is_text() && parsed_object(given->text())) arguments = given->text();
  out_.begin_call(name->text());
  out_.add_arguments(arguments);
  out_.end_json_call();
  return true;
}

bool QwenCallParser::step_name() {
  const std::size_t end = held_.find_first_of(">\n<");
  if (end == std::string::npos && held_.size() <= kNameBytesMax) return false;
  const std::string name(trimmed(std::string_view(held_).substr(0, end)));
  if (end == std::string::npos || name.empty() || name.size() > kNameBytesMax) {
    out_.say(kFunctionOpen);
    state_ = State::content;
    return true;
  }
  held_.erase(0, held_[end] == '<' ? end : end + 1);
  out_.begin_call(name);
  state_ = State::parameters;
  return true;
}

bool QwenCallParser::step_parameters() {
  const Tag tag = find_tag(held_, {kParameterOpen, kFunctionClose, kCallClose, kCallOpen, kFunctionOpen});
  held_.erase(0, tag.found == Found::no ? held_.size() : tag.found == Found::yes ? tag.end : tag.begin);
  if (tag.found != Found::yes) return false;
  if (tag.tag == kParameterOpen) {
    state_ = State::key;
    return true;
  }
  out_.end_call();
  state_ = tag.tag == kCallOpen ? State::opened : tag.tag == kFunctionOpen ? State::name : State::content;
  if (state_ == State::opened) opening_ = tag.tag;
  return true;
}

bool QwenCallParser::step_key() {
  const std::size_t end = held_.find_first_of(">\n<");
  if (end == std::string::npos && held_.size() <= kNameBytesMax) return false;
  const std::size_t cut = std::min(end, held_.size());
  value_starts_ = true;
  out_.begin_value(std::string(trimmed(std::string_view(held_).substr(0, cut))));
  held_.erase(0, cut < held_.size() && held_[cut] == '>' ? cut + 1 : cut);
  state_ = State::value;
  return true;
}

bool QwenCallParser::step_value() {
  if (value_starts_) {
    if (held_.empty()) return false;
    if (held_.front() == '\n') held_.erase(0, 1);
    value_starts_ = false;
  }
  const Tag tag = find_tag(held_, {kParameterClose, kParameterOpen, kFunctionClose, kCallClose});
  std::size_t known = tag.found == Found::no ? held_.size() : tag.begin;
  // The last line break before the tag belongs to the tag.
  if (known > 0 && held_[known - 1] == '\n') --known;
  out_.add_value(std::string_view(held_).substr(0, known));
  if (tag.found != Found::yes) {
    held_.erase(0, known);
    return false;
  }
  out_.end_value();
  held_.erase(0, tag.tag == kParameterClose ? tag.end : tag.begin);
  state_ = State::parameters;
  return true;
}

}  // namespace fourfold::text
