#include "plan/wire_time.h"

#include <gtest/gtest.h>

namespace fourfold::plan {
namespace {

TEST(WireTime, IsFoundByItsName) {
  for (const Wire wire : kWires) EXPECT_EQ(find_wire(wire_facts(wire).name), wire);
  EXPECT_EQ(find_wire("pcie5"), std::nullopt);
}

// Two machines, 1 MB: a megabyte there and one back.
TEST(WireTime, ASumGoesToTheLeaderAndBack) {
  for (const Wire wire : kWires) {
    const WireFacts& facts = wire_facts(wire);
    const Range us = wire_sum_us(wire, 2, 1e6);
    EXPECT_DOUBLE_EQ(us.low, 2 * facts.latency_us.low + 2e6 / (facts.gb_per_s * 1e3));
    EXPECT_DOUBLE_EQ(us.high - us.low, 2 * (facts.latency_us.high - facts.latency_us.low));
    EXPECT_EQ(wire_sum_us(wire, 1, 1e6).high, 0);
    EXPECT_EQ(wire_gather_us(wire, 1, 1e6).high, 0);
  }
}

// The leader's port carries every other machine's part, and the sums they get; logits it keeps.
TEST(WireTime, MoreMachinesMoreBytesAtTheLeader) {
  const auto bytes_us = [](int machines, const auto& price) {
    return price(Wire::gbe10, machines, 2e6).low - price(Wire::gbe10, machines, 1e6).low;
  };
  const auto sum = [](Wire wire, int machines, double bytes) { return wire_sum_us(wire, machines, bytes); };
  const auto gather = [](Wire wire, int machines, double bytes) {
    return wire_gather_us(wire, machines, bytes);
  };
  EXPECT_NEAR(bytes_us(4, sum) / bytes_us(2, sum), 3, 1e-9);
  EXPECT_NEAR(bytes_us(4, gather) / bytes_us(2, gather), 3, 1e-9);
  EXPECT_NEAR(bytes_us(2, sum) / bytes_us(2, gather), 2, 1e-9);
}

}  // namespace
}  // namespace fourfold::plan
