// check(condition, "what must hold", values...): we are wrong, not the world. On in release; aborts with the
// place and the values. Never used on user input.
#pragma once

#include "base/format.h"

namespace fourfold {

// Carries the call site: a consteval constructor sees the caller's file and line without a macro.
struct Claim {
  const char* what;
  const char* file;
  int line;
  consteval Claim(const char* text, const char* at_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : what(text), file(at_file), line(at_line) {}
};

[[noreturn]] void claim_failed(const Claim& claim, FormatValues values);

template <class... Values>
void check(bool condition, Claim claim, const Values&... values) {
  if (condition) [[likely]]
    return;
  claim_failed(claim, {FormatValue(values)...});
}

}  // namespace fourfold
