#include "cli/terminal_text.h"

namespace fourfold::cli {

std::string terminal_safe(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0u;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += replacement;
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      out += replacement;
      ++at;
    } else {
      out += text[at];
    }
  }
  return out;
}

void show(const Console& console, const std::string& text) {
  console.out << (console.out_is_terminal ? terminal_safe(text) : text);
}

}  // namespace fourfold::cli
