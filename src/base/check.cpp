#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fourfold {

void claim_failed(const Claim& claim, FormatValues values) {
  std::string text;
  for (const FormatValue& value : values) {
    text += text.empty() ? " with " : " ";
    value.append_to(text);
  }
  std::fprintf(stderr, "fourfold: %s:%d: does not hold: %s%s\n", claim.file, claim.line, claim.what,
               text.c_str());
  std::abort();
}

}  // namespace fourfold
