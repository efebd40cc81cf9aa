// What a model says or calls its parts may hold anything, escape sequences too. On a terminal they must not
// act: control characters other than line ends and tabs are shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>

#include "cli/console.h"

namespace fourfold::cli {

std::string terminal_safe(std::string_view text);

// Text with names from a model's files, on stdout: as it is into a file or pipe, safe on a terminal.
void show(const Console& console, const std::string& text);

}  // namespace fourfold::cli
