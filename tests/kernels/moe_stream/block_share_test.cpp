// Who gets which strips of a launch: every strip has one block, and no two blocks differ by more than one
// strip unless the last ones have fewer.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/moe_stream/unit_walk.h"

namespace fourfold::moe_stream {
namespace {

struct Block {
  int number, count;
  int block() const { return number; }
  int blocks() const { return count; }
};

TEST(BlockShare, TilesTheStripsWhateverTheirNumber) {
  for (const int blocks : {1, 7, 132, 528})
    for (int strips = 0; strips < 40 * blocks; strips += 1 + strips / 9) {
      int next = 0, largest = 0;
      for (int b = 0; b < blocks; ++b) {
        const BlockShare share = block_share(Block{b, blocks}, 1, strips);
        ASSERT_LE(share.begin, share.end);
        if (share.end > share.begin) {
          ASSERT_EQ(share.begin, next) << "block " << b << " of " << blocks << ", " << strips << " strips";
          next = share.end;
        }
        largest = std::max(largest, share.end - share.begin);
      }
      EXPECT_EQ(next, strips);
      EXPECT_EQ(largest, (strips + blocks - 1) / blocks);
    }
}

TEST(BlockShare, LeavesNoPlaceEmptyWhereManyWouldBe) {
  // 12 strips on 8 blocks: two each would leave a quarter of the places empty.
  for (int b = 0; b < 8; ++b) {
    const BlockShare share = block_share(Block{b, 8}, 1, 12);
    EXPECT_EQ(share.end - share.begin, b < 4 ? 2 : 1);
  }
  // 127 on 8 blocks: sixteen each, and one place empty.
  EXPECT_EQ(block_share(Block{7, 8}, 1, 127).end, 127);
  EXPECT_EQ(block_share(Block{0, 8}, 1, 127).end, 16);
}

}  // namespace
}  // namespace fourfold::moe_stream
