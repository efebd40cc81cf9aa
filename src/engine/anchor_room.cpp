#include "engine/anchor_room.h"

#include <algorithm>

namespace fourfold::engine {
namespace {

constexpr std::int64_t kAnchorsEach = 4;

}  // namespace

std::int64_t anchor_room(const backend::Program& program, const backend::Capacity& capacity,
                         std::int64_t bytes) {
  if (bytes == 0) return 0;
  const std::int64_t each = backend::anchor_bytes(program);
  if (each == 0) return capacity.page_count;
  const std::int64_t most = std::min((bytes < 0 ? kAnchorBytesMost : bytes) / each, capacity.page_count);
  return bytes > 0 ? most : std::min(most, kAnchorsEach * capacity.state_slot_count);
}

}  // namespace fourfold::engine
