// Which way an all-reduce goes, by its size: what each costs on a bus is plan/link_time.h's.
#pragma once

#include <string>

#include "base/format.h"
#include "plan/link_time.h"

namespace fourfold::all_reduce {

using Way = plan::SumWay;
constexpr const char* way_name(Way way) {
  return way == Way::one_shot ? "one_shot" : way == Way::two_shot ? "two_shot" : "host";
}

// Names of the rows.
inline std::string reduce_row(Way way) { return fourfold::format("all_reduce {}", way_name(way)); }
inline std::string reduce_norm_row(Way way) { return fourfold::format("all_reduce {} norm", way_name(way)); }
inline std::string gather_row(Way way) { return fourfold::format("all_gather {}", way_name(way)); }

// Microseconds of one call of f32 rows, the middle of the range; not measured.
inline double modelled_us(Way way, plan::Link link, int ranks, int rows, int columns) {
  const plan::Range us = plan::all_reduce_us(way, link, ranks, 4.0 * rows * columns);
  return (us.low + us.high) / 2;
}

// The way of a call by its size.
inline Way way_of(bool peers, int ranks, int rows, int columns) {
  if (!peers) return Way::host;
  return modelled_us(Way::two_shot, plan::Link::pcie5, ranks, rows, columns) <
                 modelled_us(Way::one_shot, plan::Link::pcie5, ranks, rows, columns)
             ? Way::two_shot
             : Way::one_shot;
}

}  // namespace fourfold::all_reduce
