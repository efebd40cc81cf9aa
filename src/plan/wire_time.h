// What sums between machines take over a network, by the way they go there (nodes/leader.h): every rank sends
// its part to the leader, which sends each the sum. Computed from the network's rate; nothing of it was
// measured by us.
#pragma once

#include <optional>
#include <string_view>

#include "plan/range.h"

namespace fourfold::plan {

enum class Wire { gbe10, gbe25, cx7 };
inline constexpr Wire kWires[] = {Wire::gbe10, Wire::gbe25, Wire::cx7};

struct WireFacts {
  std::string_view name;   // as asked for: 10gbe
  std::string_view words;  // for people
  double gb_per_s;         // one way, by its standard
  Range latency_us;        // one way, from program to program by TCP
  Evidence evidence;       // of the latency
  std::string_view because;
};
const WireFacts& wire_facts(Wire wire);
std::optional<Wire> find_wire(std::string_view name);

// One sum of `bytes` on each of so many machines: to the leader and back.
Range wire_sum_us(Wire wire, int machines, double bytes);
// Each machine has `bytes` that the leader gets.
Range wire_gather_us(Wire wire, int machines, double bytes);

}  // namespace fourfold::plan
