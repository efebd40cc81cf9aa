#include "checkpoint/open_file.h"

#include <sys/stat.h>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

TEST(OpenFile, ReadsWhatIsThereAndNoMore) {
  TempFolder folder;
  std::string text(100'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const OpenFile file(folder.write("data", text));
  EXPECT_EQ(file.size(), text.size());
  std::string copy(1000, '\0');
  file.read(99'000, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, text.substr(99'000));
  file.read(100'000, {});
  expect_error(Code::io, {"data: ended at byte 100000", "had 100000 bytes"},
               [&] { file.read(99'500, std::as_writable_bytes(std::span(copy))); });
}

TEST(OpenFile, MovesWithoutClosing) {
  TempFolder folder;
  OpenFile a(folder.write("a", "first"));
  OpenFile b(folder.write("b", "second"));
  b = std::move(a);
  const OpenFile c(std::move(b));
  std::string copy(5, '\0');
  c.read(0, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, "first");
}

TEST(OpenFile, AnUnlinkedOrReplacedFileStaysReadable) {
  TempFolder folder;
  const auto path = folder.write("a", "still here");
  const OpenFile file(path);
  std::filesystem::rename(folder.write("b", "other"), path);
  std::string copy(10, '\0');
  file.read(0, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, "still here");
  std::filesystem::remove(path);
  file.read(0, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, "still here");
}

TEST(OpenFile, DoesNotWaitForAPipe) {
  TempFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(Code::io, {"pipe: is not a regular file"}, [&] { OpenFile{path}; });
}

TEST(FileAddresses, StandForTheFileAndHoldNothing) {
  FileAddresses one(1000, "one"), other(1000, "other");
  EXPECT_TRUE(one.contain(one.all().subspan(10, 990)));
  EXPECT_FALSE(one.contain(other.all()));
  EXPECT_FALSE(other.contain(one.all()));
  const auto before = one.all();
  const FileAddresses moved(std::move(one));
  EXPECT_TRUE(moved.contain(before));
  EXPECT_TRUE(FileAddresses(0, "empty").all().empty());
  EXPECT_DEATH(static_cast<void>(*static_cast<const volatile std::byte*>(before.data())), "");
}

}  // namespace
}  // namespace fourfold::checkpoint
