// Reads safetensors files: eight bytes of header length, a JSON header, the tensors' bytes. Everything the
// header claims (length, depth, names, types, shapes, offsets, overlaps, gaps) is checked against the file's
// size before a pointer into it exists, so a view handed out by SafetensorsFile is always inside the mapping
// and exactly as long as its shape says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor.h"

namespace fourfold::checkpoint {

// The format's own limit.
inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

struct TensorEntry {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
  std::uint64_t begin = 0;  // counted from the first byte after the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::uint64_t data_begin = 0;      // in the file
  std::vector<TensorEntry> tensors;  // in the order of their bytes
};

// `start` holds the file's first bytes (all of it, or at least the header); `file_bytes` is its size and
// `what` names it in messages. Throws bad_checkpoint.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, std::uint64_t file_bytes,
                                           std::string_view what);

class SafetensorsFile {
 public:
  // Throws io or bad_checkpoint.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const MappedFile& file() const { return file_; }
  std::span<const TensorEntry> entries() const { return header_.tensors; }
  TensorView view(const TensorEntry& entry) const;

  // For files of a few tensors, such as reference outputs: a linear search. Throws bad_checkpoint when there
  // is none.
  TensorView required(std::string_view name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace fourfold::checkpoint
