#include "checkpoint/write/output_folder.h"

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

std::size_t entries_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(OutputFolder, AppearsWhenItIsComplete) {
  TempFolder temp;
  const auto wanted = temp.path() / "model";
  {
    OutputFolder out(wanted);
    out.write("a.txt", "text");
    EXPECT_FALSE(std::filesystem::exists(wanted));
    out.publish();
  }
  EXPECT_EQ(read_file(wanted / "a.txt"), "text");
  EXPECT_EQ(entries_in(temp.path()), 1u);
}

TEST(OutputFolder, LeavesNothingWhenItIsNot) {
  TempFolder temp;
  {
    OutputFolder out(temp.path() / "model/");
    out.write("a.txt", "text");
  }
  EXPECT_EQ(entries_in(temp.path()), 0u);
}

TEST(OutputFolder, RefusesWhatExists) {
  TempFolder temp;
  temp.write("model/config.json", "{}");
  temp.write("file", "");
  std::filesystem::create_symlink("nowhere", temp.path() / "link");
  for (const char* name : {"model", "model/", "file", "link"})
    expect_error(Code::invalid_request, {"exists already"}, [&] { OutputFolder out(temp.path() / name); });
  expect_error(Code::io, {"cannot be made"}, [&] { OutputFolder out(temp.path() / "no/such/folder"); });
  // What cannot be looked at is not said to exist.
  expect_error(Code::io, {"cannot be made", "too long"},
               [&] { OutputFolder out(temp.path() / std::string(300, 'x')); });
  EXPECT_EQ(read_file(temp.path() / "model/config.json"), "{}");
}

TEST(OutputFolder, NoticesWhoCameFirst) {
  TempFolder temp;
  OutputFolder out(temp.path() / "model");
  std::filesystem::create_directory(temp.path() / "model");
  expect_error(Code::io, {"has appeared"}, [&] { out.publish(); });
}

TEST(OutputFolder, CopiesFiles) {
  TempFolder temp;
  const auto source = temp.write("tokenizer.json", "{}");
  OutputFolder out(temp.path() / "model");
  out.copy(source);
  expect_error(Code::io, {"gone.json", "cannot be copied"}, [&] { out.copy(temp.path() / "gone.json"); });
  out.publish();
  EXPECT_EQ(read_file(temp.path() / "model/tokenizer.json"), "{}");
}

}  // namespace
}  // namespace fourfold::checkpoint
