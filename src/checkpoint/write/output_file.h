// A new file written at any offset, by any thread. What the disk refuses is an error with the file's name and
// what was being written; whoever owns the folder removes what is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace fourfold::checkpoint {

class OutputFile {
 public:
  // Throws io when it cannot be made, or exists.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Makes the file this long; what is not written is a hole and reads as zeros.
  void resize(std::uint64_t bytes);
  void write(std::uint64_t offset, std::span<const std::byte> bytes, std::string_view what);
  // Waits until the disk has it: a full disk may say so only now.
  void close();

 private:
  [[noreturn]] void refuse(std::string_view what, std::uint64_t offset, int reason) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace fourfold::checkpoint
