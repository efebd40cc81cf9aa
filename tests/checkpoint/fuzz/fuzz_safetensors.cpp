// Any bytes as a safetensors file: either an Error, or entries that lie inside it.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fourfold;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const checkpoint::SafetensorsHeader header = checkpoint::parse_safetensors_header(file, size, "fuzz");
    std::uint64_t covered = 0;
    for (const checkpoint::TensorEntry& tensor : header.tensors) {
      if (tensor.begin != covered || tensor.end < tensor.begin || header.data_begin + tensor.end > size)
        std::abort();
      covered = tensor.end;
    }
    if (header.data_begin + covered != size) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::bad_checkpoint) std::abort();
  }
  return 0;
}
