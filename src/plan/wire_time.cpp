#include "plan/wire_time.h"

namespace fourfold::plan {
namespace {

// Rates are the standards' (10, 25 and 200 Gbit/s). Latencies are of TCP through the kernel with a thread
// woken on each side, tens of microseconds on any of them; a faster card saves little of that. RDMA would,
// and is not built.
constexpr WireFacts kFacts[] = {
    {"10gbe", "10 GbE", 1.25, {25, 60}, Evidence::assumed, "TCP, two threads woken, a switch between"},
    {"25gbe", "25 GbE", 3.125, {20, 50}, Evidence::assumed, "TCP, two threads woken, a switch between"},
    {"cx7", "ConnectX-7 at 200 Gbit/s", 25, {15, 40}, Evidence::assumed, "TCP, two threads woken, one cable"},
};

// So many ways, one behind the other, with the bytes of all of them.
Range ways_us(Wire wire, int ways, double bytes) {
  const WireFacts& facts = wire_facts(wire);
  const double carried = bytes / facts.gb_per_s / 1e3;
  return {ways * facts.latency_us.low + carried, ways * facts.latency_us.high + carried};
}

}  // namespace

const WireFacts& wire_facts(Wire wire) { return kFacts[static_cast<int>(wire)]; }

std::optional<Wire> find_wire(std::string_view name) {
  for (const Wire wire : kWires)
    if (wire_facts(wire).name == name) return wire;
  return std::nullopt;
}

Range wire_sum_us(Wire wire, int machines, double bytes) {
  if (machines == 1) return {};
  const double others = machines - 1;
  return ways_us(wire, 2, 2 * others * bytes);  // parts come in at the leader, then sums go out
}

Range wire_gather_us(Wire wire, int machines, double bytes) {
  if (machines == 1) return {};
  const double others = machines - 1;
  return ways_us(wire, 1, others * bytes);
}

}  // namespace fourfold::plan
