// JSON text to a template value. Apart from the reader for files (json/parse.h) because a template prints
// numbers back: every float must read to the nearest double and print as Python prints it, and integers must
// not turn into floats.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace fourfold::text::jinja {

// `what` names the text in messages ("messages"). Throws invalid_request with the byte offset. Accepts NaN
// and Infinity as Python's json does; refuses integers beyond 64 bits and more than 64 levels.
Value parse_json(std::string_view text, std::string_view what);

}  // namespace fourfold::text::jinja
