// How a part of a report ended, in the words of the file.
#pragma once

#include <string>
#include <string_view>

#include "cli/run_apart.h"

namespace fourfold::cli {

// "95 s", "3 min"
std::string duration(double seconds);

// done, missed (a check failed), failed (it ended with an error), out of time, stopped.
std::string status_of(const Apart& ended);

// Why a part is not done, in a sentence; its own words where it had time for them.
std::string error_of(const Apart& ended);

// The last one that says something.
std::string last_line(const std::string& text);

}  // namespace fourfold::cli
