// JsonWriter: separators and indentation follow from the stack of open levels.
#include "base/json_writer.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/json_escape.h"
#include "base/utf8.h"

namespace fourfold {
JsonWriter& JsonWriter::key(std::string_view name) {
  check(!levels_.empty() && levels_.back().kind == '{' && !after_key_,
        "a key stands in an object, before its value", name);
  start_item();
  append_quoted(name);
  out_ += style_ == Style::pretty ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  start_value();
  append_quoted(text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  return std::isfinite(number) ? number_by_to_chars(number) : literal("null");
}

JsonWriter& JsonWriter::value(float number) {
  return std::isfinite(number) ? number_by_to_chars(number) : literal("null");
}

std::string JsonWriter::finish() {
  check(levels_.empty() && complete_, "the document is complete", levels_.size());
  complete_ = false;
  return std::exchange(out_, {});
}

JsonWriter& JsonWriter::open(char bracket) {
  start_value();
  out_ += bracket;
  levels_.push_back({.kind = bracket});
  return *this;
}

JsonWriter& JsonWriter::close(char opened, char bracket) {
  check(!levels_.empty() && levels_.back().kind == opened && !after_key_, "what is closed is open", bracket);
  const bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) break_line();
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::literal(std::string_view text) {
  start_value();
  out_ += text;
  return *this;
}

// A member or an element: everything that is preceded by a comma.
void JsonWriter::start_item() {
  if (!levels_.back().empty) out_ += ',';
  levels_.back().empty = false;
  break_line();
}

void JsonWriter::start_value() {
  if (levels_.empty()) {
    check(!complete_, "a document holds one value");
    complete_ = true;
    return;
  }
  if (levels_.back().kind == '[') return start_item();
  check(after_key_, "a value in an object follows its key");
  after_key_ = false;
}

void JsonWriter::break_line() {
  if (style_ == Style::compact) return;
  out_ += '\n';
  out_.append(2 * levels_.size(), ' ');
}

void JsonWriter::append_quoted(std::string_view text) {
  out_ += '"';
  while (!text.empty()) {
    const Utf8Step step = check_utf8_step(text);
    if (step.state != Utf8State::valid)
      out_ += kReplacement;
    else if (needs_json_escape(static_cast<unsigned char>(text.front())))
      out_ += json_escape(static_cast<unsigned char>(text.front()));
    else
      out_ += text.substr(0, step.bytes);
    text.remove_prefix(step.bytes);
  }
  out_ += '"';
}

}  // namespace fourfold
