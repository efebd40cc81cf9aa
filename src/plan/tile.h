// A tile MxNxK: weight rows x tokens x columns of K, all counted in elements. Weights are always the M
// operand here; other libraries often name tokens first, and some count K in bytes (see plan/explain.h).
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/format.h"
#include "plan/record_size.h"

namespace fourfold::plan {

struct Tile {
  int m;  // weight rows
  int n;  // tokens
  int k;  // elements, never bytes

  constexpr bool operator==(const Tile&) const = default;
};

inline std::string tile_name(const Tile& tile) { return format("{}x{}x{}", tile.m, tile.n, tile.k); }

// Reads "256x128x128". Empty for anything else: a sign, a zero, a fourth number, or K in bytes
// ("256x128x64B"), which would silently mean another tile.
inline std::optional<Tile> parse_tile(std::string_view text) {
  int extents[3] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int index = 0; index < 3; ++index) {
    if (index > 0 && (at == end || *at++ != 'x')) return std::nullopt;
    const auto [next, status] = std::from_chars(at, end, extents[index]);
    if (status != std::errc{} || extents[index] <= 0) return std::nullopt;
    at = next;
  }
  if (at != end) return std::nullopt;
  return Tile{extents[0], extents[1], extents[2]};
}

}  // namespace fourfold::plan
