// What a model says may hold anything, escape sequences too. On a terminal they must not act: control
// characters other than line ends and tabs are shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::cli {

std::string terminal_safe(std::string_view valid_text);

}  // namespace fourfold::cli
