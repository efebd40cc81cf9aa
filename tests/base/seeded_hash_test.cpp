#include "base/seeded_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fourfold {
namespace {

TEST(SeededHash, EqualTextsAreEqualAndOthersRarelyAre) {
  const SeededHash hash;
  EXPECT_EQ(hash(std::string("abcdefghij")), hash(std::string_view("abcdefghijk").substr(0, 10)));
  std::set<std::size_t> seen;
  for (int i = 0; i < 100'000; ++i) seen.insert(hash("key number " + std::to_string(i)));
  for (int length = 0; length < 64; ++length)
    seen.insert(hash(std::string(static_cast<std::size_t>(length), '\0')));
  EXPECT_EQ(seen.size(), 100'064u);
}

// Whoever sends keys does not know the point: pairs that collide for one do not for another.
TEST(SeededHash, CollisionsOfOnePointAreNoneOfAnother) {
  // At the point 2 the chunk "\x02" before "\x00" weighs as much as "\x01" before "\x02".
  const std::string a = std::string("\x02\0\0\0\0\0\0\0\0", 8), b = std::string("\x01\0\0\0\0\0\0\x02", 8);
  EXPECT_EQ(SeededHash(2)(a), SeededHash(2)(b));
  EXPECT_NE(SeededHash(3)(a), SeededHash(3)(b));
  EXPECT_NE(SeededHash()(a), SeededHash()(b));
}

}  // namespace
}  // namespace fourfold
