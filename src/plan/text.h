// Columns and paragraphs for the plain-text pages of this room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fourfold::plan {

// The widest line any page prints; a terminal of 110 columns shows every one whole.
inline constexpr int kPageColumns = 108;

// Code points, not bytes: what a terminal counts (nothing here prints wide or combining characters).
inline int columns_of(std::string_view text) {
  int columns = 0;
  for (char letter : text) columns += (static_cast<unsigned char>(letter) & 0xC0) != 0x80;
  return columns;
}

inline std::string spaces(int count) {
  return std::string(static_cast<std::size_t>(count > 0 ? count : 0), ' ');
}

inline std::string pad_left(std::string_view text, int columns) {
  return spaces(columns - columns_of(text)).append(text);
}

inline std::string pad_right(std::string_view text, int columns) {
  return std::string(text).append(spaces(columns - columns_of(text)));
}

// Breaks a paragraph at spaces. Every line starts with `indent` spaces, the first with `mark` in place of as
// many of them, and every line ends with a newline. A word longer than a line is left whole.
inline std::string paragraph(std::string_view text, int indent = 0, std::string_view mark = {}) {
  std::string out;
  std::string line = pad_right(mark, indent);
  bool line_is_empty = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : text.size());
    if (!line_is_empty && columns_of(line) + 1 + columns_of(word) > kPageColumns) {
      out.append(line).append("\n");
      line = spaces(indent);
      line_is_empty = true;
    }
    if (!line_is_empty) line += ' ';
    line += word;
    line_is_empty = false;
  }
  return out.append(line).append("\n");
}

}  // namespace fourfold::plan
