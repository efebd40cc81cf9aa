// Which way an all-reduce goes, and what each costs on a bus: a model of latency and bytes, for the choice by
// size and for the column of numbers that cannot be measured without several GPUs.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fourfold::all_reduce {

enum class Way { one_shot, two_shot, host };
constexpr const char* way_name(Way way) {
  return way == Way::one_shot ? "one_shot" : way == Way::two_shot ? "two_shot" : "host";
}

// A link between GPUs, or a GPU and the host, in one direction. Bandwidths are what large posted writes reach
// (about 85 % of the raw rate of 16 lanes), trips what a small write takes until a spinning reader sees it.
struct Bus {
  const char* name;
  double gb_per_s;
  double trip_us;       // a posted write and its flag
  double read_trip_us;  // a read of the host's memory: there and back
};
inline constexpr Bus kPcie4{"PCIe 4 x16", 26.0, 1.4, 1.6};
inline constexpr Bus kPcie5{"PCIe 5 x16", 52.0, 1.2, 1.4};
// The launch, the barrier of the block and the fence before the flag.
inline constexpr double kFixedUs = 2.5;

// Microseconds of one call, all ranks sending at once over a link of their own.
constexpr double modelled_us(Way way, const Bus& bus, int ranks, int rows, int columns) {
  const double message_us = 4e-3 * rows * columns / bus.gb_per_s;  // f32, microseconds
  const double others = ranks - 1;
  switch (way) {
    case Way::one_shot: return kFixedUs + bus.trip_us + others * message_us;
    case Way::two_shot: return kFixedUs + 2 * bus.trip_us + 2 * others / ranks * message_us;
    case Way::host: return kFixedUs + bus.trip_us + bus.read_trip_us + message_us + others * message_us;
  }
  return 0;
}

// The way of a call by its size, with two ranks at most one trip: two_shot sends no fewer bytes then.
constexpr Way way_of(bool peers, int ranks, int rows, int columns) {
  if (!peers) return Way::host;
  return modelled_us(Way::two_shot, kPcie5, ranks, rows, columns) <
                 modelled_us(Way::one_shot, kPcie5, ranks, rows, columns)
             ? Way::two_shot
             : Way::one_shot;
}

}  // namespace fourfold::all_reduce
