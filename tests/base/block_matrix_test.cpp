#include "base/block_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace fourfold {
namespace {

constexpr BlockShape kShape{.format = "TEST4", .block_columns = 16};

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BlockMatrix, AcceptsWholeBlocks) {
  require_sizes(kShape, {3, 32, 48, 6});
  require_sizes(kShape, {0, 32, 0, 0});
  require_sizes(kShape, {3, 0, 0, 0});
}

TEST(BlockMatrix, NamesWhatDisagrees) {
  EXPECT_EQ(refusal([] {
              require_sizes(kShape, {3, 24, 36, 6});
            }),
            "TEST4 matrix has 24 columns; its blocks need a multiple of 16");
  EXPECT_EQ(refusal([] {
              require_sizes(kShape, {3, 32, 47, 6});
            }),
            "TEST4 matrix has 47 bytes of codes; 3 rows need 16 bytes each");
  EXPECT_EQ(refusal([] {
              require_sizes(kShape, {3, 32, 48, 7});
            }),
            "TEST4 matrix has 7 bytes of scales; 3 rows need 2 bytes each");
  EXPECT_EQ(refusal([] {
              require_sizes(kShape, {-3, 32, 48, 6});
            }),
            "TEST4 matrix has -3 rows and 32 columns; neither may be negative");
}

// 2^60 rows of 16 code bytes are 0 modulo 2^64: a header must not pass by wrapping around.
TEST(BlockMatrix, AProductThatOverflowsIsRefused) {
  EXPECT_EQ(refusal([] {
              require_sizes(kShape, {std::int64_t{1} << 60, 32, 0, 0});
            }),
            "TEST4 matrix has 0 bytes of codes; 1152921504606846976 rows need 16 bytes each");
}

TEST(BlockMatrix, NamesTheFirstWeightThatIsNotFinite) {
  std::vector<float> values(32, 1.0f);
  require_finite(values, 16);
  values[19] = -INFINITY;
  values[20] = NAN;
  EXPECT_EQ(refusal([&] { require_finite(values, 16); }),
            "weight at row 1, column 3 is -inf; only finite weights can be quantised");
}

TEST(BlockMatrix, NamesABadScale) {
  EXPECT_EQ(refusal([] { fail_bad_scale(kShape, 0x7F, "NaN", 7, 3); }),
            "TEST4 scale 0x7F (NaN) at row 2, block 1");
}

TEST(BlockMatrixDeathTest, ValuesMustFillTheMatrix) {
  const std::vector<float> values(32);
  require_values(kShape, values, 2, 16);
  EXPECT_DEATH(require_values(kShape, values, 3, 16), "values are \\[rows, columns\\] with 32 3 16");
}

}  // namespace
}  // namespace fourfold
