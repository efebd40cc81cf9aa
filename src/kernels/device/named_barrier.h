// The named barriers of a block: bar.sync has sixteen, and number 0 is the one of all threads (sync_block). A
// number that another part of the same kernel uses would let warps meet that do not wait for each other.
#pragma once

#include "base/macros.h"

namespace fourfold::device {

enum class NamedBarrier : int {
  first_group = 1,  // of the warps that share a strip, or of a warpgroup; the next groups' follow
  route = 15,       // of the warps that route, beside the groups
};

// Of group 0, 1, ...; up to 14 of them in one block.
FOURFOLD_DEVICE constexpr NamedBarrier group_barrier(int group) {
  return static_cast<NamedBarrier>(static_cast<int>(NamedBarrier::first_group) + group);
}

}  // namespace fourfold::device
