// A folder that appears whole or not at all: files are written into a folder of another name beside it, which
// takes its name when everything is there and vanishes when anything fails.
#pragma once

#include <filesystem>
#include <string_view>

namespace fourfold::checkpoint {

class OutputFolder {
 public:
  // Throws invalid_request when `wanted` exists, io when nothing can be written beside it.
  explicit OutputFolder(const std::filesystem::path& wanted);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where to write until publish().
  const std::filesystem::path& path() const { return partial_; }

  // A small file, whole. Throws io, naming the file.
  void write(std::string_view name, std::string_view text) const;
  void copy(const std::filesystem::path& source) const;

  // The files are on the disk and the folder has its name. Throws io.
  void publish();

 private:
  std::filesystem::path wanted_;
  std::filesystem::path partial_;
  bool published_ = false;
};

}  // namespace fourfold::checkpoint
