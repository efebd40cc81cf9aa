// The tables of a routing in a step kernel's proof.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {

// Memory for the tables of a routing; its numbers, so that two can be compared.
inline moe::RouteTables take_tables(StepRun& run, const moe_route::RouteParams& route) {
  const auto pairs = static_cast<std::size_t>(route.tokens * route.top_k);
  const auto slots = static_cast<std::size_t>(moe::slot_limit(route.tokens, route.top_k, route.experts));
  const int tiles = moe::tile_limit(route.tokens, route.top_k, route.experts, route.tile_tokens);
  return {run.take<std::int32_t>(pairs, "pair experts"),
          run.take<float>(pairs, "pair weights"),
          run.take<std::int32_t>(pairs, "pair slots"),
          run.take<std::int32_t>(slots, "slot tokens"),
          run.take<float>(slots, "slot weights"),
          run.take<moe::TokenTile>(static_cast<std::size_t>(tiles), "tiles"),
          run.take<std::int32_t>(1, "tile count")};
}
inline std::vector<double> numbers_of(StepRun& run, const moe_route::RouteParams& route) {
  const moe::RouteTables& tables = route.tables;
  std::vector<double> numbers;
  const auto add = [&](const auto* from, std::size_t count) {
    for (const auto number : run.written(from, count)) numbers.push_back(static_cast<double>(number));
  };
  const auto pairs = static_cast<std::size_t>(route.tokens * route.top_k);
  add(tables.pair_expert, pairs);
  add(tables.pair_weight, pairs);
  add(tables.pair_slot, pairs);
  add(tables.tile_count, 1);
  for (const moe::TokenTile& tile :
       run.written(tables.tiles, static_cast<std::size_t>(std::max(0.0, numbers.back())))) {
    numbers.insert(numbers.end(), {static_cast<double>(tile.expert), static_cast<double>(tile.first_slot),
                                   static_cast<double>(tile.count)});
    add(tables.slot_token + tile.first_slot, static_cast<std::size_t>(tile.count));
    add(tables.slot_weight + tile.first_slot, static_cast<std::size_t>(tile.count));
  }
  return numbers;
}

}  // namespace fourfold::verify
