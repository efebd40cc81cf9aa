// Where the ranks of a model meet, and what that takes of each one's memory: known before any of them joins.
#pragma once

#include <cstdint>

namespace fourfold::all_reduce {

enum class Meets {
  here,     // in one process: GPUs write into each other's memory
  bridged,  // in several, over what carries a mailbox in the host's memory (bridged_exchange.h)
  nccl,     // in several, by NCCL (nccl_exchange.h)
};

struct MeetingSize {
  int ranks = 1;
  int columns = 0;
  int rows = 0;      // of a step
  int gathered = 0;  // columns of a rank's part that are put side by side
};

// Of one rank. A mailbox is of the host's memory, page-locked; it counts, for there are GPUs that have no
// other (DGX Spark). NCCL's own buffers are taken when it connects, and counted by what its sources say that
// they are; not measured.
std::int64_t meeting_bytes(Meets meets, const MeetingSize& size);

}  // namespace fourfold::all_reduce
