// Whether two checkpoints are the same one, without reading all of it: what a packed copy is checked against.
#pragma once

#include <cstdint>
#include <string_view>

#include "checkpoint/shard_index.h"

namespace fourfold::checkpoint {

// Each a checksum over all shards. A tensor that was changed in place shows in the times, if not in the
// samples.
struct Identity {
  std::uint64_t headers = 0;  // names, types, shapes and offsets of the tensors, sizes of the files
  std::uint64_t samples = 0;  // 64 pages of each file, evenly spread
  std::uint64_t times = 0;    // of the last change

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Throws io.
Identity identity_of(const Checkpoint& checkpoint);

// "its tensors differ": what of the three does first; empty for equals.
std::string_view difference(const Identity& a, const Identity& b);

}  // namespace fourfold::checkpoint
