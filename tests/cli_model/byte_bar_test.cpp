#include "cli/byte_bar.h"

#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

TEST(ByteBar, SaysGigabytesSpeedAndTimeLeft) {
  EXPECT_EQ(byte_line("loading", 50'000'000'000, 250'000'000'000, 25),
            "loading 50.0 of 250.0 GB, 2 GB/s, about 100 s left");
  EXPECT_EQ(byte_line("writing", 400'000'000, 800'000'000, 4),
            "writing 400.0 of 800.0 MB, 100 MB/s, about 4 s left");
  // What was here before says nothing about the speed.
  EXPECT_EQ(byte_line("fetching", 400'000'000, 800'000'000, 4, 360'000'000),
            "fetching 400.0 of 800.0 MB, 10 MB/s, about 40 s left");
  // Nothing has come yet: no speed, and no time left made of it.
  EXPECT_EQ(byte_line("loading", 0, 0, 0), "loading 0.0 of 0.0 MB");
  EXPECT_EQ(byte_line("fetching", 0, 73'400'320, 3), "fetching 0.0 of 73.4 MB");
  Captured captured;
  {
    ByteBar bar(captured.console, "loading");
    bar.update(1, 2);
  }
  EXPECT_EQ(captured.err.str(), "") << "nothing is said in the first two seconds";
}

}  // namespace
}  // namespace fourfold::cli
