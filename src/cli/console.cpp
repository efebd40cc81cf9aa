#include "cli/console.h"

#include "base/error.h"
#include "cli/terminal_text.h"

namespace fourfold::cli {

void announce(const Console& console, const Degradation& degradation, bool strict) {
  const std::string text = fourfold::format("{}: {} instead of {}: {}", degradation.what, degradation.chosen,
                                            degradation.instead_of, degradation.why);
  if (strict)
    throw Error(Code::unsupported_op, text, "--strict makes this an error; leave it out to go on with less.");
  console.err << "fourfold: warning: " << text << "\n";
}

void notice(const Console& console, const std::string& text, bool strict) {
  if (strict)
    throw Error(Code::invalid_request, text, "--strict makes this an error; leave it out to go on.");
  console.err << "fourfold: notice: " << terminal_safe(text) << "\n";
}

void show_error(const Console& console, const std::string& message, const std::string& hint) {
  console.err << "fourfold: " << terminal_safe(message) << "\n";
  if (!hint.empty()) console.err << "  " << terminal_safe(hint) << "\n";
}

}  // namespace fourfold::cli
