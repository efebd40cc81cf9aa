#include "base/format.h"

#include <charconv>

namespace fourfold {
namespace {

template <class T>
void append_digits(std::string& out, T value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void append_real(std::string& out, double value) {
  char digits[48];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr);
}

}  // namespace

void FormatValue::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::text: out.append(value_.text, size_); return;
    case Kind::boolean: out += value_.integer != 0 ? "true" : "false"; return;
    case Kind::character: out += static_cast<char>(value_.integer); return;
    case Kind::integer: append_digits(out, value_.integer); return;
    case Kind::natural: append_digits(out, value_.natural); return;
    case Kind::real: append_real(out, value_.real); return;
  }
}

void append_formatted(std::string& out, std::string_view pattern, FormatValues values) {
  for (const FormatValue& value : values) {
    const auto hole = pattern.find("{}");
    if (hole == std::string_view::npos) {
      // More arguments than holes: keep the value visible rather than lose it.
      out += pattern;
      out += " [";
      value.append_to(out);
      out += ']';
      pattern = {};
    } else {
      out += pattern.substr(0, hole);
      value.append_to(out);
      pattern = pattern.substr(hole + 2);
    }
  }
  out += pattern;
}

std::string formatted(std::string_view pattern, FormatValues values) {
  std::string out;
  append_formatted(out, pattern, values);
  return out;
}

std::string with_commas(long long value) {
  const std::string digits = std::to_string(value < 0 ? -value : value);
  std::string out = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace fourfold
