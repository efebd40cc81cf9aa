// Which K the unrolled loop of a streaming row takes.
#pragma once

#include "kernels/moe/tables.h"
#include "plan/row_facts.h"

namespace fourfold::moe {

// Rows with biases and a loop of a whole segment are ragged: the last round may be shorter, down to this many
// columns. gpt-oss's K is 2,880: five rounds of 512 and one of 320.
constexpr bool is_ragged(bool adds_bias, int loop) { return adds_bias && loop == kSegmentColumns; }
inline constexpr int kRaggedColumns = 256;

constexpr bool loop_takes(int columns, int loop, bool ragged) {
  const int rest = columns % loop;
  return rest == 0 || (ragged && rest >= kRaggedColumns);
}
inline bool loop_takes(int columns, const plan::RowFacts& row) {
  return loop_takes(columns, row.k, is_ragged(row.clamps, row.k));
}

}  // namespace fourfold::moe
