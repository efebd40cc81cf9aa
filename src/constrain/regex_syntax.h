// The text of a regular expression as a tree. What no automaton can match (back references, look-behind) is
// refused by name while it is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/budget.h"
#include "constrain/characters.h"

namespace fourfold::constrain {

struct RegexNode {
  enum class Kind : std::uint8_t { text, set, sequence, either, repeat, start, end, ahead, not_ahead };
  Kind kind;
  bool looks = false;                     // a look-ahead stands in it
  bool starts = false;                    // a ^ stands in it
  std::string text = {};                  // literal characters
  CodeSet set = {};                       // one character of these
  std::vector<std::uint32_t> parts = {};  // of a repeat and a look-ahead: one
  std::int64_t min = 0;
  std::optional<std::int64_t> max = {};
};

struct RegexSyntax {
  std::vector<RegexNode> nodes;
  std::uint32_t top = 0;
};

// `what` begins messages. Throws invalid_request.
RegexSyntax read_regex(std::string_view pattern, std::string_view what, Budget& budget);

}  // namespace fourfold::constrain
