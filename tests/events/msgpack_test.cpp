#include "events/msgpack.h"

#include <gtest/gtest.h>

#include <limits>

namespace fourfold::events {
namespace {

template <class Write>
std::string written(const Write& write) {
  std::string out;
  MsgpackWriter pack(out);
  write(pack);
  return out;
}

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

// Each form begins where the one before it ends.
TEST(Msgpack, NaturalsTakeTheShortestForm) {
  const auto natural = [](std::uint64_t value) { return written([&](auto& pack) { pack.natural(value); }); };
  EXPECT_EQ(natural(0), bytes({0}));
  EXPECT_EQ(natural(127), bytes({127}));
  EXPECT_EQ(natural(128), bytes({0xcc, 128}));
  EXPECT_EQ(natural(255), bytes({0xcc, 255}));
  EXPECT_EQ(natural(256), bytes({0xcd, 1, 0}));
  EXPECT_EQ(natural(65535), bytes({0xcd, 255, 255}));
  EXPECT_EQ(natural(65536), bytes({0xce, 0, 1, 0, 0}));
  EXPECT_EQ(natural(0xffffffff), bytes({0xce, 255, 255, 255, 255}));
  EXPECT_EQ(natural(std::uint64_t{1} << 32), bytes({0xcf, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(natural(std::numeric_limits<std::uint64_t>::max()),
            bytes({0xcf, 255, 255, 255, 255, 255, 255, 255, 255}));
}

TEST(Msgpack, GroupsAndTextsSayHowLongTheyAre) {
  EXPECT_EQ(written([](auto& pack) { pack.array(15); }), bytes({0x9f}));
  EXPECT_EQ(written([](auto& pack) { pack.array(16); }), bytes({0xdc, 0, 16}));
  EXPECT_EQ(written([](auto& pack) { pack.array(65536); }), bytes({0xdd, 0, 1, 0, 0}));
  EXPECT_EQ(written([](auto& pack) { pack.map(2); }), bytes({0x82}));
  EXPECT_EQ(written([](auto& pack) { pack.text("ab"); }), bytes({0xa2, 'a', 'b'}));
  const std::string longer(32, 'x');
  EXPECT_EQ(written([&](auto& pack) { pack.text(longer); }), bytes({0xda, 0, 32}) + longer);
  EXPECT_EQ(written([](auto& pack) { pack.nil(); }), bytes({0xc0}));
  EXPECT_EQ(written([](auto& pack) { pack.real(1); }), bytes({0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace fourfold::events
