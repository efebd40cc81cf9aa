#include "checkpoint/mapped_file.h"

#include <sys/stat.h>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

TEST(MappedFile, ReadsThroughBothWays) {
  TempFolder folder;
  std::string text(100'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const MappedFile file(folder.write("data", text));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), text);
  std::string copy(1000, '\0');
  file.read(99'000, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, text.substr(99'000));
  // Released pages come back when touched.
  file.release(file.bytes().subspan(5000, 60'000));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), text);
  expect_error(Code::io, {"ended at byte 100000"},
               [&] { file.read(99'500, std::as_writable_bytes(std::span(copy))); });
}

TEST(MappedFile, MovesWithoutClosing) {
  TempFolder folder;
  MappedFile a(folder.write("a", "first"));
  MappedFile b(folder.write("b", "second"));
  const std::byte* data = a.bytes().data();
  b = std::move(a);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_EQ(b.bytes().size(), 5u);
  const MappedFile c(std::move(b));
  EXPECT_EQ(std::to_integer<char>(c.bytes()[0]), 'f');
  EXPECT_TRUE(c.contains(c.bytes().subspan(1, 4)));
}

TEST(MappedFile, AnUnlinkedFileStaysReadable) {
  TempFolder folder;
  const auto path = folder.write("a", "still here");
  const MappedFile file(path);
  std::filesystem::remove(path);
  EXPECT_EQ(std::to_integer<char>(file.bytes()[0]), 's');
}

TEST(MappedFile, DoesNotWaitForAPipe) {
  TempFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(Code::io, {"pipe: is not a regular file"}, [&] { MappedFile{path}; });
}

}  // namespace
}  // namespace fourfold::checkpoint
