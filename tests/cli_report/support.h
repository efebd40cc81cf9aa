// A folder for a test's files, and reading them back.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/cli/support.h"

namespace fourfold::cli {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "report-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A part of a report by its name.
inline const Json& part_of(const Json& report, const std::string& name) {
  for (const Json& part : report.at("parts").items)
    if (part.at("name").text == name) return part;
  throw std::runtime_error("no part " + name);
}

inline std::string status_of(const Json& report, const std::string& name) {
  return part_of(report, name).at("status").text;
}

}  // namespace fourfold::cli
