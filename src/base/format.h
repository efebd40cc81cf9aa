// Builds messages: each "{}" of the pattern is replaced by the next argument. The silicon floor stays free of
// third-party code and g++ 12 has no <format>; this is all it needs. Messages are everywhere and none is hot,
// so a call only lists its arguments; the work is compiled once, in format.cpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fourfold {

// One argument of a message. Views what it was made of: it lives as long as the call.
class FormatValue {
 public:
  FormatValue(bool value) : kind_(Kind::boolean) { value_.integer = value ? 1 : 0; }
  FormatValue(char value) : kind_(Kind::character) { value_.integer = value; }
  template <std::signed_integral T>
  FormatValue(T value) : kind_(Kind::integer) {
    value_.integer = value;
  }
  template <std::unsigned_integral T>
  FormatValue(T value) : kind_(Kind::natural) {
    value_.natural = value;
  }
  FormatValue(float value) : FormatValue(static_cast<double>(value)) {}
  FormatValue(double value) : kind_(Kind::real) { value_.real = value; }
  FormatValue(const char* text) : FormatValue(std::string_view(text)) {}
  FormatValue(const std::string& text) : FormatValue(std::string_view(text)) {}
  FormatValue(std::string_view text) : kind_(Kind::text), size_(text.size()) { value_.text = text.data(); }

  void append_to(std::string& out) const;

 private:
  enum class Kind { text, boolean, character, integer, natural, real };
  Kind kind_;
  std::size_t size_ = 0;  // of a text
  union {
    const char* text;
    long long integer;
    unsigned long long natural;
    double real;
  } value_;
};

using FormatValues = std::initializer_list<FormatValue>;

inline void append_value(std::string& out, FormatValue value) { value.append_to(out); }

void append_formatted(std::string& out, std::string_view pattern, FormatValues values);
std::string formatted(std::string_view pattern, FormatValues values);

template <class... Args>
void append_format(std::string& out, std::string_view pattern, const Args&... args) {
  append_formatted(out, pattern, {FormatValue(args)...});
}

// A literal's own overload, an exact match: newer standard libraries bring std::format with <chrono>, which a
// call with a std::string finds as well, and between two conversions from a literal the compiler does not
// choose.
template <std::size_t N, class... Args>
std::string format(const char (&pattern)[N], Args&&... args) {
  return formatted({pattern, N - 1}, {FormatValue(args)...});
}
template <class... Args>
std::string format(std::string_view pattern, const Args&... args) {
  return formatted(pattern, {FormatValue(args)...});
}

// 101376 -> "101,376", as byte counts are printed everywhere.
std::string with_commas(long long value);

}  // namespace fourfold
