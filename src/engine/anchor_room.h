// How many recurrent states a server keeps for its prefix cache.
#pragma once

#include <cstdint>

#include "backend/batch.h"

namespace fourfold::engine {

// Capacity::anchor_count for so many bytes; -1: a few for each sequence, of at most kAnchorBytesMost
// together. A model without recurrent layers needs nothing kept beside its pages: one for each.
inline constexpr std::int64_t kAnchorBytesMost = 2'000'000'000;
std::int64_t anchor_room(const backend::Program& program, const backend::Capacity& capacity,
                         std::int64_t bytes);

}  // namespace fourfold::engine
