// JsonWriter: separators and indentation follow from the stack of open levels.
#include "base/json_writer.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace fourfold {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

struct Utf8Step {
  std::size_t bytes;  // to move on by; for invalid input the part that one U+FFFD replaces
  bool valid;
};

// One UTF-8 sequence at the start of a non-empty text. Overlong forms, surrogates and values above U+10FFFF
// are told by the range of the second byte alone (Unicode standard, table 3-7).
Utf8Step step_utf8(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t at = 1; at < length; ++at) {
    if (at >= text.size() || byte_at(text, at) < low || byte_at(text, at) > high) return {at, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

void append_escaped_ascii(std::string& out, char letter) {
  switch (letter) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto code = static_cast<std::uint8_t>(letter);
  if (code >= 0x20) {
    out += letter;
    return;
  }
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u00";
  out += digits[code >> 4];
  out += digits[code & 15];
}

}  // namespace

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
    const Utf8Step step = step_utf8(text);
    if (!step.valid)
      out_ += "\xEF\xBF\xBD";
    else if (step.bytes == 1)
      append_escaped_ascii(out_, text.front());
    else
      out_ += text.substr(0, step.bytes);
    text.remove_prefix(step.bytes);
  }
  out_ += '"';
}

}  // namespace fourfold
