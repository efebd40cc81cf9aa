// Reads a server's log, however large, in one pass and one megabyte, and counts the lines that matter.
#pragma once

#include <string>

#include "doctor/facts.h"

namespace fourfold::doctor {

// Sets the log.* facts. "-" is stdin. Throws io when it cannot be read.
void read_log(const std::string& path, Facts& facts);

// The same for text at hand.
void read_log_text(std::string_view text, Facts& facts);

}  // namespace fourfold::doctor
