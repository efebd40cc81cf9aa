#include "checkpoint/write/output_file.h"

#include <sys/resource.h>

#include <csignal>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

// As a full disk: writes beyond the limit fail. The tests of the program try a disk that is really full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(OutputFile, WritesAnywhere) {
  TempFolder temp;
  const auto path = temp.path() / "file";
  OutputFile file(path);
  file.resize(6);
  const std::string text = "ef";
  file.write(4, std::as_bytes(std::span(text.data(), text.size())), "the end");
  file.close();
  EXPECT_EQ(read_file(path), std::string("\0\0\0\0ef", 6));
}

TEST(OutputFile, RefusesToReplace) {
  TempFolder temp;
  temp.write("file", "kept");
  expect_error(Code::io, {"file", "cannot be made"}, [&] { OutputFile file(temp.path() / "file"); });
  EXPECT_EQ(read_file(temp.path() / "file"), "kept");
}

TEST(OutputFile, SaysWhatDidNotFit) {
  TempFolder temp;
  const FileSizeLimit limit(1000);
  OutputFile file(temp.path() / "file");
  const std::vector<std::byte> bytes(600);
  file.write(0, bytes, "first.weight");
  const std::string hint = expect_error(Code::io, {"file", "second.weight", "at byte 1000"},
                                        [&] { file.write(600, bytes, "second.weight"); });
  EXPECT_NE(hint.find("free space"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::checkpoint
