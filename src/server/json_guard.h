// A look at JSON text before it is parsed: how deep it is and how many values it has. Constant memory, so
// that what is refused here never cost more than its bytes.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/jinja/json_value.h"

namespace fourfold::server {

struct JsonSize {
  std::size_t depth = 0;
  std::size_t value_count = 0;  // at most: separators and opening brackets, plus one
};
JsonSize measure_json(std::string_view text);

struct JsonBounds {
  std::size_t depth_max = 64;
  std::size_t value_count_max = text::jinja::kJsonValuesMax;  // what the parser takes
};
// Throws invalid_request with the number and its limit; also for an empty text and a byte order mark.
void require_bounded(std::string_view text, const JsonBounds& bounds = {});

}  // namespace fourfold::server
