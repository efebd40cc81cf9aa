#include "engine/anchor_room.h"

#include <gtest/gtest.h>

namespace fourfold::engine {
namespace {

TEST(AnchorRoom, IsWhatTheBytesHold) {
  backend::Program program;
  program.delta_states.push_back({.name = "",
                                  .key_head_count = 1,
                                  .value_head_count = 2,
                                  .key_head_dim = 4,
                                  .value_head_dim = 4,
                                  .conv_taps = 4});
  const backend::Capacity capacity{.page_count = 100, .state_slot_count = 3};
  // 2 heads of 4 x 4, and 3 rows of 16 inputs.
  EXPECT_EQ(backend::anchor_bytes(program), 4 * (32 + 48));
  EXPECT_EQ(anchor_room(program, capacity, 0), 0);
  EXPECT_EQ(anchor_room(program, capacity, 320 * 7 + 1), 7);
  EXPECT_EQ(anchor_room(program, capacity, 320 * 1000), 100) << "no more than pages";
  EXPECT_EQ(anchor_room(program, capacity, -1), 12);
  program.delta_states.clear();
  EXPECT_EQ(anchor_room(program, capacity, -1), 100);
}

}  // namespace
}  // namespace fourfold::engine
