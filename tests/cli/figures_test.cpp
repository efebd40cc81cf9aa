#include "cli/figures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fourfold::cli {
namespace {

TEST(Figures, AsManyDigitsAsMatter) {
  EXPECT_EQ(rounded(0.189765), "0.19");
  EXPECT_EQ(rounded(0.1873), "0.187");
  EXPECT_EQ(rounded(4.2071), "4.21");
  EXPECT_EQ(rounded(30.52), "30.5");
  EXPECT_EQ(rounded(2.0), "2");
  EXPECT_EQ(rounded(9.999), "10");
  EXPECT_EQ(rounded(99.96), "100");
  EXPECT_EQ(rounded(764.4), "764");
  EXPECT_EQ(rounded(16051.9), "16,052");
  EXPECT_EQ(rounded(0.00012345), "0.000123");
  EXPECT_EQ(rounded(0), "0");
  EXPECT_EQ(rounded(-3.14159), "-3.14");
  EXPECT_EQ(rounded(std::nan("")), "nan");
}

TEST(Figures, BytesAndCounts) {
  EXPECT_EQ(as_bytes(0), "0 bytes");
  EXPECT_EQ(as_bytes(999), "999 bytes");
  EXPECT_EQ(as_bytes(15'343'408), "15.3 MB");
  EXPECT_EQ(as_bytes(999'999), "1 MB");
  EXPECT_EQ(as_bytes(24'780'191'744), "24.8 GB");
  EXPECT_EQ(as_count(20'668'360), "20.7 million");
  EXPECT_EQ(as_count(396.3e9), "396 billion");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(2048, "token"), "2,048 tokens");
}

}  // namespace
}  // namespace fourfold::cli
