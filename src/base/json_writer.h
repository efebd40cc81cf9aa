// Writes one JSON document: what every command prints under --json. Structure is checked while writing (a key
// outside an object or an unclosed array is our bug); text is always valid UTF-8 and numbers always valid
// JSON.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

template <class T>
concept JsonInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

class JsonWriter {
 public:
  enum class Style { compact, pretty };

  explicit JsonWriter(Style style = Style::compact) : style_(style) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('{', '}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close('[', ']'); }

  JsonWriter& key(std::string_view name);

  // Bytes that are not UTF-8 become U+FFFD.
  JsonWriter& value(std::string_view text);
  // Without it a literal would convert to bool.
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth) { return literal(truth ? "true" : "false"); }
  JsonWriter& value(std::nullptr_t) { return literal("null"); }
  // A value that is JSON already, as it stands.
  JsonWriter& json(std::string_view text) { return literal(text); }

  template <JsonInteger T>
  JsonWriter& value(T number) {
    return number_by_to_chars(number);
  }
  // The shortest digits that read back as the same number; JSON has no infinity and no NaN, they become null.
  JsonWriter& value(double number);
  JsonWriter& value(float number);

  template <class T>
  JsonWriter& member(std::string_view name, const T& item) {
    return key(name).value(item);
  }

  // The finished document; the writer is empty again.
  std::string finish();

 private:
  struct Level {
    char kind;  // '{' or '['
    bool empty = true;
  };

  template <class T>
  JsonWriter& number_by_to_chars(T number) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return literal({digits, static_cast<std::size_t>(end - digits)});
  }

  JsonWriter& open(char bracket);
  JsonWriter& close(char opened, char bracket);
  JsonWriter& literal(std::string_view text);
  void start_item();
  void start_value();
  void break_line();
  void append_quoted(std::string_view text);

  Style style_;
  std::string out_;
  std::vector<Level> levels_;
  bool after_key_ = false;
  bool complete_ = false;
};

}  // namespace fourfold
