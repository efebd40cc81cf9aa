// JSON values by what they mean, for comparing the values a schema lists.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "constrain/budget.h"
#include "constrain/json_number.h"

namespace fourfold::constrain {

// Equal for values JSON Schema calls equal: members in any order, 1 and 1.0 the same.
std::string meaning_of(const boost::json::value& value, Budget& budget);

Decimal decimal_of(const boost::json::value& number);

}  // namespace fourfold::constrain
