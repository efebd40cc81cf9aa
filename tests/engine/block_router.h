// A router that is told what becomes of cached blocks.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/random.h"
#include "schedule/block_event.h"

namespace fourfold::engine {

// What a router knows of the cached blocks: all of them, though now and then it misses what it is told.
struct BlockRouter {
  bool told(const std::vector<schedule::BlockEvent>& events) {
    if (misses && random.below(5) == 0) return false;
    for (const schedule::BlockEvent& event : events) {
      using Kind = schedule::BlockEvent::Kind;
      if (event.kind == Kind::cleared) blocks.clear();
      EXPECT_TRUE(!event.parent || blocks.contains(*event.parent))
          << "a block stands on one that is not there";
      for (const schedule::BlockHash block : event.blocks)
        EXPECT_TRUE(event.kind == Kind::stored ? blocks.insert(block).second : blocks.erase(block) == 1);
    }
    return true;
  }
  Random random;
  bool misses = true;
  std::set<schedule::BlockHash> blocks = {};
};

}  // namespace fourfold::engine
