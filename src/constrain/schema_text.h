// JSON of a request (a schema, a list of tools) as a value; what is wrong with it is the request's fault.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "constrain/budget.h"

namespace fourfold::constrain {

boost::json::value parse_schema_text(std::string_view text, std::string_view what, const Limits& limits);

}  // namespace fourfold::constrain
