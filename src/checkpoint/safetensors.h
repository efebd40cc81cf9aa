// Reads safetensors files: eight bytes of header length, a JSON header, the tensors' bytes. Everything the
// header claims (length, depth, names, types, shapes, offsets, overlaps, gaps) is checked against the file's
// size before a view of it exists, so a view handed out by SafetensorsFile is always inside the file and
// exactly as long as its shape says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/open_file.h"
#include "checkpoint/tensor.h"

namespace fourfold::checkpoint {

// The format's own limit.
inline constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

inline constexpr std::uint64_t kHeaderLengthBytes = 8;

// What a file's first eight bytes say.
std::uint64_t header_bytes(std::span<const std::byte> start);

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

  const OpenFile& file() const { return file_; }
  std::span<const TensorEntry> entries() const { return header_.tensors; }
  TensorView view(const TensorEntry& entry) const;

  // For files of a few tensors, such as reference outputs: a linear search. Throws bad_checkpoint when there
  // is none.
  TensorView required(std::string_view name) const;

  // Part of a tensor of this file. Throws io when the file has become shorter.
  bool contains(std::span<const std::byte> range) const { return addresses_.contain(range); }
  void read(std::span<const std::byte> range, std::span<std::byte> out) const;
  template <class T>
  std::vector<T> copy(const TensorView& tensor) const {
    const auto stored = elements<T>(tensor);
    std::vector<T> values(stored.size());
    read(std::as_bytes(stored), std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  OpenFile file_;
  FileAddresses addresses_;
  SafetensorsHeader header_;
};

}  // namespace fourfold::checkpoint
