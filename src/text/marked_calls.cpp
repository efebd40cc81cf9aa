#include "text/marked_calls.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace fourfold::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::size_t skip_space(std::string_view text, std::size_t from) {
  return std::min(text.find_first_not_of(kSpace, from), text.size());
}

enum class Found { no, perhaps, yes };

// `mark` at this place; perhaps: the text ends within it.
Found match(std::string_view text, std::size_t at, std::string_view mark) {
  if (mark.empty()) return Found::no;
  const std::string_view there = text.substr(at, mark.size());
  if (there == mark) return Found::yes;
  return at + there.size() == text.size() && mark.starts_with(there) ? Found::perhaps : Found::no;
}

struct Mark {
  Found found = Found::no;
  std::size_t begin = 0;
  std::string_view mark = {};
};

constexpr std::string_view kFirstLetters = "<[";  // of marks

// The first of the marks; or where one may just be beginning.
Mark find_mark(std::string_view text, std::initializer_list<std::string_view> marks) {
  for (std::size_t at = text.find_first_of(kFirstLetters); at != std::string_view::npos;
       at = text.find_first_of(kFirstLetters, at + 1)) {
    Mark best{.begin = at};
    for (const std::string_view mark : marks) {
      const Found found = match(text, at, mark);
      if (found > best.found) best = {found, at, mark};
    }
    if (best.found != Found::no) return best;
  }
  return {.begin = text.size()};
}

// A key and what opens its value, whole: <arg_key>K</arg_key> <arg_value>, or <parameter name="K">.
Found match_key(std::string_view text, std::size_t at, const CallMarks& marks,
                std::string_view* key = nullptr, std::size_t* end = nullptr) {
  if (const Found open = match(text, at, marks.key_open); open != Found::yes) return open;
  at += marks.key_open.size();
  // A name has none of the letters its end begins with.
  const std::size_t close = std::min(text.find(marks.key_close[0], at), text.size());
  const std::string_view name = trimmed(text.substr(at, std::min(close - at, kCallNameBytesMax + 1)));
  if (close == text.size()) return name.empty() || is_key_name(name) ? Found::perhaps : Found::no;
  if (!is_key_name(name)) return Found::no;
  if (const Found ends = match(text, close, marks.key_close); ends != Found::yes) return ends;
  std::size_t behind = close + marks.key_close.size();
  if (!marks.value_open.empty()) {
    behind = skip_space(text, behind);
    const Found open = behind == text.size() ? Found::perhaps : match(text, behind, marks.value_open);
    if (open != Found::yes) return open;
    behind += marks.value_open.size();
  }
  if (key != nullptr) *key = name;
  if (end != nullptr) *end = behind;
  return Found::yes;
}

}  // namespace

std::vector<ToolEvent> MarkedCallParser::push(std::string_view text) {
  held_ += text;
  run();
  return out_.take();
}

void MarkedCallParser::run() {
  for (Next next = step(); next != Next::more; next = step()) {
    if (next == Next::again) continue;
    // What is behind the mark is read again, as text.
    out_.say(std::exchange(opening_, {}));
    state_ = State::content;
  }
}

std::vector<ToolEvent> MarkedCallParser::finish(bool cut_off) {
  while (!cut_off && state_ == State::value) {
    end_value(perhaps_.value_or(held_.size()), false);
    run();
  }
  const std::string_view word = trimmed(held_);
  if (!cut_off && state_ == State::name && marks_.name_close.empty() && schemas_->knows(word)) {
    out_.begin_call(std::string(word));
  } else if (state_ == State::content) {
    out_.say(held_);
  } else if (state_ == State::section || state_ == State::name || state_ == State::json_begin) {
    out_.say(opening_ + held_);
  }
  held_.clear();
  // JSON that has not ended is half a call.
  if (out_.in_call() && !cut_off && marks_.has_values()) out_.end_call();
  out_.leave_call();
  out_.finish();
  return out_.take();
}

MarkedCallParser::Next MarkedCallParser::step() {
  switch (state_) {
    case State::content: return step_content();
    case State::section: return step_section();
    case State::name: return step_name();
    case State::keys: return step_keys();
    case State::key: return step_key();
    case State::value: return step_value();
    case State::json_begin: return step_json_begin();
    case State::json: return step_json();
    case State::json_end: return step_json_end();
  }
  return Next::more;
}

void MarkedCallParser::open(std::string_view mark) {
  opening_ += mark;
  state_ = mark == marks_.section_open ? State::section : State::name;
}

MarkedCallParser::Next MarkedCallParser::step_content() {
  if (held_.empty()) return Next::more;
  const Mark mark =
      find_mark(held_, {marks_.section_open, marks_.section_close, marks_.call_open, marks_.call_close});
  out_.say(std::string_view(held_).substr(0, mark.begin));
  held_.erase(0, mark.begin);
  if (mark.found != Found::yes) return Next::more;
  held_.erase(0, mark.mark.size());
  if (mark.mark == marks_.section_open || mark.mark == marks_.call_open) {
    opening_.clear();
    open(mark.mark);
  } else if (!out_.calls_seen()) {
    out_.say(mark.mark);  // closes nothing
  }
  return Next::again;
}

// Only a call may stand behind what opens the section.
MarkedCallParser::Next MarkedCallParser::step_section() {
  const std::size_t first = skip_space(held_, 0);
  opening_ += held_.substr(0, first);
  held_.erase(0, first);
  if (held_.empty()) return Next::more;
  const Found call = match(held_, 0, marks_.call_open), close = match(held_, 0, marks_.section_close);
  if (call == Found::yes) {
    held_.erase(0, marks_.call_open.size());
    open(marks_.call_open);
    return Next::again;
  }
  if (close == Found::yes) {
    held_.erase(0, marks_.section_close.size());
    state_ = State::content;
    return Next::again;
  }
  return call == Found::perhaps || close == Found::perhaps ? Next::more : Next::no_call;
}

MarkedCallParser::Next MarkedCallParser::step_name() {
  if (!marks_.has_values()) return name_before_json();
  return marks_.name_close.empty() ? name_before_tags() : name_in_quotes();
}

MarkedCallParser::Next MarkedCallParser::begin(std::string_view name, std::size_t used, State next) {
  out_.begin_call(std::string(name));
  held_.erase(0, used);
  state_ = next;
  return Next::again;
}

// Up to the first key or the call's end, which must follow: a name has no mark of its own.
MarkedCallParser::Next MarkedCallParser::name_before_tags() {
  const std::string_view held = held_;
  const std::size_t first = skip_space(held, 0);
  const std::size_t end = held.find_first_of(" \t\r\n<", first);
  if (end == std::string_view::npos)
    return held.size() - first <= kCallNameBytesMax ? Next::more : Next::no_call;
  const std::string_view name = held.substr(first, end - first);
  if (!is_call_name(name)) return Next::no_call;
  const std::size_t behind = skip_space(held, end);
  if (behind == held.size()) return Next::more;
  Found best = Found::no;
  for (const std::string_view mark : {marks_.key_open, marks_.call_close, marks_.call_open})
    best = std::max(best, match(held, behind, mark));
  if (best == Found::yes) return begin(std::string(name), behind, State::keys);
  return best == Found::perhaps ? Next::more : Next::no_call;
}

MarkedCallParser::Next MarkedCallParser::name_in_quotes() {
  const std::size_t end = held_.find(marks_.name_close);
  if (end == std::string::npos)
    return held_.size() <= kCallNameBytesMax + marks_.name_close.size() ? Next::more : Next::no_call;
  const std::string name(trimmed(std::string_view(held_).substr(0, end)));
  if (!is_call_name(name)) return Next::no_call;
  return begin(name, end + marks_.name_close.size(), State::keys);
}

// DeepSeek-V3 and R1: function, separator, the name on a line. V3.1: the name, separator. Kimi:
// functions.NAME:0, separator. Which it is shows behind the separator.
MarkedCallParser::Next MarkedCallParser::name_before_json() {
  const std::string_view held = held_;
  const std::size_t close = held.find(marks_.name_close);
  if (close == std::string_view::npos)
    return held.size() <= kCallNameBytesMax + marks_.name_close.size() ? Next::more : Next::no_call;
  std::string_view name = trimmed(held.substr(0, close));
  std::size_t used = close + marks_.name_close.size();
  const std::size_t behind = skip_space(held, used);
  if (name == kDeepSeekKind) {
    if (behind == held.size()) return Next::more;
    if (held[behind] != '{' && held[behind] != kFence[0]) {
      used = held.find_first_of("\n{`<", behind);
      if (used == std::string_view::npos)
        return held.size() - behind <= kCallNameBytesMax ? Next::more : Next::no_call;
      name = trimmed(held.substr(behind, used - behind));
    }
  }
  if (!marks_.before_name.empty()) {
    if (name.starts_with(marks_.before_name)) name.remove_prefix(marks_.before_name.size());
    const std::size_t number = name.find_last_not_of("0123456789");
    if (number != std::string_view::npos && name[number] == ':') name = name.substr(0, number);
  }
  if (!is_call_name(name)) return Next::no_call;
  name_ = name;
  opening_ += held.substr(0, used);
  held_.erase(0, used);
  state_ = State::json_begin;
  return Next::again;
}

MarkedCallParser::Next MarkedCallParser::step_json_begin() {
  const std::string_view held = held_;
  std::size_t at = skip_space(held, 0);
  bool fenced = false;
  if (at == held.size()) return Next::more;
  for (const std::string_view fence : {kFenceOpen, kFence}) {
    const Found found = match(held, at, fence);
    if (found == Found::perhaps) return Next::more;
    if (found == Found::no) continue;
    at = skip_space(held, at + fence.size());
    fenced = true;
    break;
  }
  if (at == held.size()) return Next::more;
  if (held[at] == '{') {
    fenced_ = fenced;
    json_.clear();
    depth_ = 0;
    in_string_ = escaped_ = false;
    return begin(name_, at, State::json);
  }
  const Found close = match(held, at, marks_.call_close);
  if (close == Found::perhaps) return Next::more;
  if (close == Found::no) return Next::no_call;
  begin(name_, at + marks_.call_close.size(), State::content);
  out_.end_call();  // of no arguments
  return Next::again;
}

MarkedCallParser::Next MarkedCallParser::step_json() {
  std::size_t at = 0;
  bool whole = false;
  for (; at < held_.size() && !whole; ++at) {
    const char c = held_[at];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      whole = --depth_ == 0;
    }
  }
  out_.add_arguments(std::string_view(held_).substr(0, at));
  json_ += held_.substr(0, at);
  held_.erase(0, at);
  if (!whole) return Next::more;
  if (is_json_object(json_)) {
    out_.end_json_call();
  } else {
    out_.leave_call();
  }
  state_ = State::json_end;
  return Next::again;
}

// Blanks in front of a mark that closes, and the fence where one was opened; the marks themselves are passed
// over wherever they come. Where nothing closes a call, what follows it is text.
MarkedCallParser::Next MarkedCallParser::step_json_end() {
  if (fenced_ || !marks_.call_close.empty()) {
    held_.erase(0, skip_space(held_, 0));
    const Found fence = fenced_ ? match(held_, 0, kFence) : Found::no;
    if (held_.empty() || fence == Found::perhaps) return Next::more;
    fenced_ = false;
    if (fence == Found::yes) {
      held_.erase(0, kFence.size());
      return Next::again;
    }
  }
  state_ = State::content;
  return Next::again;
}

MarkedCallParser::Next MarkedCallParser::step_keys() {
  const Mark mark = find_mark(held_, {marks_.key_open, marks_.call_close, marks_.section_close,
                                      marks_.call_open, marks_.section_open});
  held_.erase(0, mark.begin);
  if (mark.found != Found::yes) return Next::more;
  if (mark.mark == marks_.key_open) {
    state_ = State::key;
    return Next::again;
  }
  held_.erase(0, mark.mark.size());
  out_.end_call();
  state_ = State::content;
  opening_.clear();
  if (mark.mark == marks_.call_open || mark.mark == marks_.section_open) open(mark.mark);
  return Next::again;
}

// A key without a value is passed over.
MarkedCallParser::Next MarkedCallParser::step_key() {
  std::string_view key;
  std::size_t end = 0;
  const Found found = match_key(held_, 0, marks_, &key, &end);
  if (found == Found::perhaps) return Next::more;
  if (found == Found::no) {
    held_.erase(0, marks_.key_open.size());
    state_ = State::keys;
    return Next::again;
  }
  out_.begin_value(std::string(key));
  held_.erase(0, end);
  searched_ = 0;
  perhaps_.reset();
  state_ = State::value;
  return Next::again;
}

// A value ends at its own mark. Where that is missing, the next key ends it, or the call's end behind which
// the answer ends or another call begins; until that is known the text behind is held.
MarkedCallParser::Next MarkedCallParser::step_value() {
  const std::string_view held = held_;
  for (; (searched_ = std::min(held.find('<', searched_), held.size())) < held.size(); ++searched_) {
    const Found end = match(held, searched_, marks_.value_close), key = match_key(held, searched_, marks_);
    if (end == Found::yes || key == Found::yes) {
      end_value(searched_, end == Found::yes);
      if (end == Found::yes) held_.erase(0, marks_.value_close.size());
      return Next::again;
    }
    Found close = Found::no;
    for (const std::string_view mark : {marks_.call_close, marks_.section_close})
      close = std::max(close, match(held, searched_, mark));
    const Found call = perhaps_ ? match(held, searched_, marks_.call_open) : Found::no;
    if (call == Found::yes) {
      end_value(*perhaps_, false);
      return Next::again;
    }
    if (std::max({end, key, close, call}) == Found::perhaps) break;
    if (close == Found::yes && !perhaps_) perhaps_ = searched_;
  }
  const std::size_t known = perhaps_.value_or(searched_);
  // A line break may belong to a mark that is not the value's own.
  const std::size_t sure = known > 0 && held[known - 1] == '\n' ? known - 1 : known;
  out_.add_value(held.substr(0, sure));
  held_.erase(0, sure);
  searched_ -= sure;
  if (perhaps_) *perhaps_ -= sure;
  return Next::more;
}

void MarkedCallParser::end_value(std::size_t at, bool has_mark) {
  const bool line_break = !has_mark && at > 0 && held_[at - 1] == '\n';
  out_.add_value(std::string_view(held_).substr(0, line_break ? at - 1 : at));
  out_.end_value();
  held_.erase(0, at);
  state_ = State::keys;
}

}  // namespace fourfold::text
