#include "cli/build_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A plain file is replaced; what a link points at is written, and the link stays one.
TEST(WriteFile, ReplacesFilesAndWritesThroughLinks) {
  const fs::path folder = fs::temp_directory_path() / "fourfold-write-file-test";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const fs::path file = folder / "file", link = folder / "link";
  write_file(file.string(), "first");
  write_file(file.string(), "second");
  EXPECT_EQ(contents(file), "second");
  fs::create_symlink(file, link);
  write_file(link.string(), "third");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(file), "third");
  EXPECT_THROW(write_file("/dev/full", "text"), Error);
  EXPECT_FALSE(fs::is_regular_file("/dev/full"));
  EXPECT_THROW(write_file((folder / "none" / "file").string(), "text"), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}), 2);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace fourfold::cli
