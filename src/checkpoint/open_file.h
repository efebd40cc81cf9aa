// A regular file, open for reading. Bytes are copied out of it, never mapped: whoever makes a mapped file
// shorter ends the process that touches the lost pages next, and a read is only told so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace fourfold::checkpoint {

class OpenFile {
 public:
  // Throws io when the path cannot be opened or is no regular file.
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Safe to call from several threads. Throws io when the file has become shorter.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void close() noexcept;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Addresses that stand for the bytes of a file. Views are cut out of them as out of memory, and a view says
// which bytes of the file it means; but nothing is there, and a touch ends the process like a null pointer's.
class FileAddresses {
 public:
  // Throws io when the process may not have so many.
  FileAddresses(std::uint64_t size, const std::filesystem::path& path);
  ~FileAddresses();
  FileAddresses(FileAddresses&& other) noexcept;
  FileAddresses& operator=(FileAddresses&& other) noexcept;

  std::span<const std::byte> all() const { return {data_, size_}; }
  bool contain(std::span<const std::byte> range) const {
    return range.data() >= data_ && range.data() + range.size() <= data_ + size_;
  }

 private:
  void give_back() noexcept;

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fourfold::checkpoint
