#include "cli/terminal_text.h"

#include "text/utf8.h"

namespace fourfold::cli {

std::string terminal_safe(std::string_view valid_text) {
  std::string out;
  for (std::size_t at = 0; at < valid_text.size();) {
    const text::CodePoint point = text::read_code_point(valid_text.data() + at);
    const bool is_control = (point.code < 0x20 && point.code != '\n' && point.code != '\t') ||
                            (point.code >= 0x7F && point.code < 0xA0);
    if (is_control)
      out += text::kReplacement;
    else
      out += valid_text.substr(at, static_cast<std::size_t>(point.bytes));
    at += static_cast<std::size_t>(point.bytes);
  }
  return out;
}

}  // namespace fourfold::cli
