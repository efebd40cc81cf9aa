#include "text/call_writer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/jinja/python_text.h"

namespace fourfold::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// A JSON string's letters without the quotes.
std::string escaped(std::string_view text) {
  std::string quoted = jinja::to_json(jinja::Value(text));
  return quoted.substr(1, quoted.size() - 2);
}

// Bytes at the end that begin a character without ending it.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count)
    if (!is_continuation(text[text.size() - count]))
      return check_utf8_step(text.substr(text.size() - count)).state == Utf8State::incomplete ? count : 0;
  return 0;
}

}  // namespace

void CallWriter::say(std::string_view text) {
  if (!said_) {
    const std::size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) {
      space_ += text;
      return;
    }
    emit(ToolEvent::Kind::text, std::exchange(space_, {}));
    said_ = true;
  }
  emit(ToolEvent::Kind::text, std::string(text));
}

void CallWriter::begin_call(std::string name) {
  calls_seen_ = true;
  in_call_ = true;
  said_ = false;
  space_.clear();
  keys_.clear();
  function_ = std::move(name);
  emit(ToolEvent::Kind::begin, function_);
}

void CallWriter::end_call() {
  emit(ToolEvent::Kind::arguments, keys_.empty() ? "{}" : "}");
  end_json_call();
}

void CallWriter::begin_value(std::string key) {
  value_.clear();
  // The first of two parameters of one name counts; it may be on its way already.
  skips_value_ = key.empty() || keys_.contains(key);
  if (skips_value_) return;
  value_types_ = schemas_->types_of(function_, key);
  streams_value_ = value_types_ == kToolString;
  value_key_ = (keys_.empty() ? "{" : ", ") + jinja::to_json(jinja::Value(std::string_view(key))) + ": ";
  if (streams_value_) emit(ToolEvent::Kind::arguments, value_key_ + "\"");
  keys_.insert(std::move(key));
}

void CallWriter::add_value(std::string_view text) {
  if (skips_value_ || text.empty()) return;
  value_ += text;
  if (!streams_value_) return;
  const std::size_t whole = value_.size() - unfinished_bytes(value_);
  emit(ToolEvent::Kind::arguments, escaped(std::string_view(value_).substr(0, whole)));
  value_.erase(0, whole);
}

void CallWriter::end_value() {
  if (skips_value_) return;
  emit(ToolEvent::Kind::arguments,
       streams_value_ ? escaped(value_) + "\"" : value_key_ + typed_json(value_, value_types_));
}

void CallWriter::add_arguments(std::string_view json) { emit(ToolEvent::Kind::arguments, std::string(json)); }

void CallWriter::end_json_call() {
  in_call_ = false;
  emit(ToolEvent::Kind::end, {});
}

void CallWriter::finish() {
  if (!calls_seen_) emit(ToolEvent::Kind::text, std::exchange(space_, {}));
}

std::vector<ToolEvent> CallWriter::take() { return std::exchange(events_, {}); }

void CallWriter::emit(ToolEvent::Kind kind, std::string text) {
  const bool has_text = kind == ToolEvent::Kind::text || kind == ToolEvent::Kind::arguments;
  if (has_text && text.empty()) return;
  if (has_text && !events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
  } else {
    events_.push_back({kind, std::move(text)});
  }
}

}  // namespace fourfold::text
