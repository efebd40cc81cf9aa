// UTF-8: reading, writing, checking and repairing. What comes from outside goes through repaired() first; all
// that reads text works on valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fourfold {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  char32_t code;
  int bytes;
};

// Reads one code point of valid UTF-8; `at` stands on its first byte.
inline CodePoint read_code_point(const char* at) {
  const auto byte = [at](int i) { return static_cast<unsigned char>(at[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3Fu) << 6) | (byte(2) & 0x3Fu), 3};
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3Fu) << 12) | ((byte(2) & 0x3Fu) << 6) | (byte(3) & 0x3Fu),
          4};
}

// Whether a byte belongs to a code point that began before it.
constexpr bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The first byte of the code point that the byte at `at` belongs to.
inline std::size_t code_point_start(std::string_view text, std::size_t at) {
  while (at > 0 && is_continuation(text[at])) --at;
  return at;
}

void append_code_point(std::string& out, char32_t code);

// What stands at the start of `text` (not empty): a whole code point, an error, or the honest start of a code
// point whose rest may still come.
enum class Utf8State { valid, invalid, incomplete };
struct Utf8Step {
  Utf8State state;
  std::size_t bytes;  // of the code point, or of the longest broken part that is replaced by one U+FFFD
};
Utf8Step check_utf8_step(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Each longest broken part becomes one U+FFFD, as Python's errors="replace" and Rust's from_utf8_lossy do.
std::string repaired(std::string_view text);

std::size_t count_code_points(std::string_view valid_text);

}  // namespace fourfold
