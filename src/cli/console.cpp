#include "cli/console.h"

#include "base/error.h"

namespace fourfold::cli {

void announce(const Console& console, const Degradation& degradation, bool strict) {
  const std::string text = fourfold::format("{}: {} instead of {}: {}", degradation.what, degradation.chosen,
                                            degradation.instead_of, degradation.why);
  if (strict)
    throw Error(Code::unsupported_op, text, "--strict makes this an error; leave it out to go on with less.");
  console.err << "fourfold: warning: " << text << "\n";
}

}  // namespace fourfold::cli
