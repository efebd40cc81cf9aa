// How a string of JSON writes what may not stand for itself. Whoever writes JSON, or says which JSON may be
// written, asks here.
#pragma once

#include <string>
#include <string_view>

namespace fourfold {

constexpr bool needs_json_escape(char32_t code) { return code < 0x20 || code == '"' || code == '\\'; }

// The canonical escape: one letter where JSON has one, else \u00XX. Only for what needs one.
inline std::string json_escape(char32_t code) {
  constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt", digits = "0123456789abcdef";
  const std::size_t at = plain.find(static_cast<char>(code));
  if (at != std::string_view::npos) return {'\\', letters[at]};
  return {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
}

}  // namespace fourfold
