#include "base/scale_layout.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/ue8m0.h"

namespace fourfold {
namespace {

template <class Scales>
concept Swizzles = requires(const Scales& scales) {
  to_128x4(scales, 1, 1);
};
template <class Scales>
concept Unswizzles = requires(const Scales& scales) {
  to_linear(scales);
};
static_assert(Swizzles<std::vector<E4m3>> && Unswizzles<Scales128x4>);
static_assert(!Swizzles<Scales128x4> && !Unswizzles<std::vector<E4m3>>, "the layouts are two types");
static_assert(!Swizzles<std::vector<Ue8m0>> && !Swizzles<std::vector<std::uint8_t>>);

const std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},   {1, 4},   {128, 4}, {127, 5},  {129, 3},
                                                         {256, 8}, {300, 7}, {8, 128}, {384, 12}, {33, 1}};

TEST(ScaleLayout, KnownOffsets) {
  static_assert(scale_offset_128x4(0, 3, 8) == 3 && scale_offset_128x4(0, 4, 8) == 512);
  static_assert(scale_offset_128x4(1, 0, 8) == 16 && scale_offset_128x4(32, 0, 8) == 4);
  static_assert(scale_offset_128x4(127, 3, 4) == 511 && scale_offset_128x4(128, 0, 5) == 1024);
  static_assert(scale_bytes_128x4(1, 1) == 512 && scale_bytes_128x4(129, 5) == 2048);
  static_assert(scale_bytes_128x4(0, 0) == 0 && scale_bytes_linear(3, 5) == 15);
  static_assert(scale_offset_linear(2, 3, 5) == 13);
}

// The same layout in the words of its other definition: reshape (M/128, 4, 32, K/4, 4), permute (0, 3, 2, 1,
// 4).
TEST(ScaleLayout, IsTheReshapedPermutation) {
  for (const auto& [rows, blocks] : kShapes) {
    const std::int64_t padded_blocks = padded_scale_blocks(blocks);
    std::int64_t offset = 0;
    for (std::int64_t tile = 0; tile < padded_scale_rows(rows) / 128; ++tile)
      for (std::int64_t group = 0; group < padded_blocks / 4; ++group)
        for (std::int64_t row32 = 0; row32 < 32; ++row32)
          for (std::int64_t quarter = 0; quarter < 4; ++quarter)
            for (std::int64_t block4 = 0; block4 < 4; ++block4)
              ASSERT_EQ(scale_offset_128x4(tile * 128 + quarter * 32 + row32, group * 4 + block4, blocks),
                        offset++);
    EXPECT_EQ(offset, scale_bytes_128x4(rows, blocks)) << "a bijection of the padded matrix";
  }
}

TEST(ScaleLayout, ConvertsBothWaysWithZeroPadding) {
  Random random(9);
  for (const auto& [rows, blocks] : kShapes) {
    std::vector<E4m3> linear(static_cast<std::size_t>(rows * blocks));
    for (E4m3& scale : linear) scale.bits = static_cast<std::uint8_t>(1 + random.below(0x7E));
    const Scales128x4 swizzled = to_128x4(linear, rows, blocks);
    ASSERT_EQ(static_cast<std::int64_t>(swizzled.bytes.size()), scale_bytes_128x4(rows, blocks));
    std::int64_t nonzero = 0;
    for (const E4m3 scale : swizzled.bytes) nonzero += scale.bits != 0;
    EXPECT_EQ(nonzero, rows * blocks) << "everything else is padding, and zero";
    EXPECT_EQ(to_linear(swizzled), linear);
  }
}

TEST(ScaleLayoutDeathTest, RefusesABufferOfAnotherSize) {
  const volatile std::int64_t rows =
      2;  // Unseen by the compiler, which would warn of the overread check() prevents.
  EXPECT_DEATH(to_128x4(std::vector<E4m3>(5), rows, 3), "scales are \\[rows, blocks\\] with 5 2 3");
  EXPECT_DEATH(to_linear({.rows = 1, .blocks = 1, .bytes = {}}), "padded to 128x4");
}

}  // namespace
}  // namespace fourfold
