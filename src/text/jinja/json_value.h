// JSON text to a template value. Apart from the reader for files (json/parse.h) because a template prints
// numbers back: every float must read to the nearest double and print as Python prints it, and integers, of
// any size, must not turn into floats.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace fourfold::text::jinja {

enum class JsonRules {
  python,   // NaN and Infinity are numbers and the last of two equal members counts, as for Python's json
  request,  // neither, and at most kJsonValuesMax values
  answer,   // as request, and the last of two equal members counts: for what a model wrote and others will
            // read
};
inline constexpr int kJsonValuesMax = 1 << 19;

// `what` names the text in messages ("messages"). Throws invalid_request with the byte offset. Refuses
// more than 64 levels.
Value parse_json(std::string_view text, std::string_view what, JsonRules rules = JsonRules::python);

}  // namespace fourfold::text::jinja
