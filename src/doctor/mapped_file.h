// A file mapped for reading: a library of gigabytes of which a few headers are looked at.
//
// Limit: whoever makes the file shorter meanwhile ends this process when it touches what is lost. A scan
// takes seconds, and nothing is served by this process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace fourfold::doctor {

class MappedFile {
 public:
  // Throws io.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fourfold::doctor
