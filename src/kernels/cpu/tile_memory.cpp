#include "kernels/cpu/tile_memory.h"

#include <cstdlib>

#include "base/error.h"

namespace fourfold::cpu {

std::uint8_t* allocate_tile_memory(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(page, (bytes + page - 1) / page * page));
  if (memory == nullptr)
    fail_with_hint(Code::out_of_memory, "use fewer threads or a smaller model",
                   "{} bytes for a thread's tiles cannot be allocated", bytes);
  return memory;
}

}  // namespace fourfold::cpu
