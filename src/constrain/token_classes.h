// Which states of a grammar no token can tell apart.
#pragma once

#include <cstdint>
#include <vector>

#include "constrain/grammar.h"

namespace fourfold::constrain {

// A number for each state. Equal numbers: every text of at most `bytes_max` bytes does the same from both. A
// string of at most 1,000 characters has a state for each count, but no token tells 900 characters left from
// 901.
std::vector<std::uint32_t> token_classes(const Grammar& grammar, int bytes_max);

}  // namespace fourfold::constrain
