// A regular file mapped for reading. Pages come in when touched and are given back by release(), so that a
// checkpoint larger than memory can be packed piece by piece.
//
// Limit: whoever truncates a file while it is mapped makes the next touch of the lost pages a SIGBUS. read()
// does not touch the mapping and reports such a file as an error; loaders of files that others may rewrite
// use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace fourfold::checkpoint {

class MappedFile {
 public:
  // Throws io when the path cannot be opened, is no regular file or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool contains(std::span<const std::byte> range) const {
    return range.data() >= data_ && range.data() + range.size() <= data_ + size_;
  }

  // Copies from the file, not from the mapping. Throws io when the file has become shorter.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // Asks the kernel to fetch the range now. A hint: errors are of no consequence.
  void prefetch(std::span<const std::byte> range) const;

  // Takes the pages of the range out of this process; a later touch brings them back. Pages shared with a
  // neighbour go too: the alternative, keeping them, would hold two pages for each of several hundred
  // thousand tensors.
  void release(std::span<const std::byte> range) const;

 private:
  void close() noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fourfold::checkpoint
