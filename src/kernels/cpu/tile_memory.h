// Memory for the tile unit's copies of tokens, which every thread has for itself. Apart from tiles_amx.h,
// because what throws is compiled for every CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fourfold::cpu {

// Whole pages, to be given back with std::free. Throws out_of_memory.
std::uint8_t* allocate_tile_memory(std::size_t bytes);

}  // namespace fourfold::cpu
