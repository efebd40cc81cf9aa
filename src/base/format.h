// Builds messages: each "{}" of the pattern is replaced by the next argument. The silicon floor stays free of
// third-party code and g++ 12 has no <format>; this is all it needs.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace fourfold {

inline void append_value(std::string& out, std::string_view text) { out += text; }
inline void append_value(std::string& out, const char* text) { out += text; }
inline void append_value(std::string& out, bool value) { out += value ? "true" : "false"; }
inline void append_value(std::string& out, char value) { out += value; }

template <std::integral T>
void append_value(std::string& out, T value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

template <std::floating_point T>
void append_value(std::string& out, T value) {
  char digits[48];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr;
  out.append(digits, end);
}

inline void append_format(std::string& out, std::string_view pattern) { out += pattern; }

template <class First, class... Rest>
void append_format(std::string& out, std::string_view pattern, const First& first, const Rest&... rest) {
  const auto hole = pattern.find("{}");
  if (hole == std::string_view::npos) {
    // More arguments than holes: keep the value visible rather than lose it.
    out += pattern;
    out += " [";
    append_value(out, first);
    out += ']';
    append_format(out, std::string_view{}, rest...);
    return;
  }
  out += pattern.substr(0, hole);
  append_value(out, first);
  append_format(out, pattern.substr(hole + 2), rest...);
}

// Where <chrono> is included, write fourfold::format: newer standard libraries bring std::format with it,
// which a call with a std::string finds as well.
template <class... Args>
std::string format(std::string_view pattern, const Args&... args) {
  std::string out;
  append_format(out, pattern, args...);
  return out;
}

// 101376 -> "101,376", as byte counts are printed everywhere.
inline std::string with_commas(long long value) {
  const std::string digits = std::to_string(value < 0 ? -value : value);
  std::string out = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace fourfold
