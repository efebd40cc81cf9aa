// The formats of strings a schema may ask for, as regular expressions: every text they take has the format,
// though not every text that has it is taken (an e-mail address with quotes in it).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fourfold::constrain {

struct Format {
  std::string_view name;
  std::string regex;
};

std::span<const Format> known_formats();
// Null: none of that name.
const Format* find_format(std::string_view name);

}  // namespace fourfold::constrain
