// Regular expressions as RE2 and ECMAScript share them, and look-ahead where what follows it can be known.
#pragma once

#include <string_view>

#include "constrain/characters.h"
#include "constrain/expression.h"

namespace fourfold::constrain {

enum class RegexUse {
  whole,   // the text matches as a whole; ^ and $ at its ends change nothing
  search,  // JSON Schema's pattern: a match somewhere, unless ^ or $ bind it
};

// What stands for ^ and $ is the start and the end of the text that is compiled: the result is all of a rule,
// or compiled on its own. `what` begins messages, as in "guided_regex" or "schema at /properties/a/pattern".
// Throws invalid_request.
ExprId parse_regex(ExpressionPool& pool, std::string_view pattern, RegexUse use, Writing writing,
                   std::string_view what);

}  // namespace fourfold::constrain
