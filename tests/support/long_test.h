// ./dev test runs a part of what some tests can; FOURFOLD_LONG=1, as ./dev test --long sets it, all.
#pragma once

#include <cstdlib>
#include <string_view>

namespace fourfold::test {

inline bool wants_all() {
  const char* const wanted = std::getenv("FOURFOLD_LONG");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

}  // namespace fourfold::test
