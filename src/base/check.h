// check(condition, "what must hold", values...): we are wrong, not the world. On in release; aborts with the
// place and the values. Never used on user input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

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

[[noreturn]] inline void claim_failed(const Claim& claim, const std::string& values) {
  std::fprintf(stderr, "fourfold: %s:%d: does not hold: %s%s\n", claim.file, claim.line, claim.what,
               values.c_str());
  std::abort();
}

template <class... Values>
void check(bool condition, Claim claim, const Values&... values) {
  if (condition) [[likely]]
    return;
  std::string text;
  ((text += " ", append_value(text, values)), ...);
  claim_failed(claim, text.empty() ? text : " with" + text);
}

}  // namespace fourfold
