// What a block does next: Row::tile query vectors of one sequence over one split of its context (decode), or
// over all of it (prompts). A query vector is a head of a row: vector i of a sequence is head i % heads of
// its row i / heads.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/find_work.h"
#include "kernels/attention/splits.h"
#include "kernels/mla/latent_page.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::mla {

// The same in every warp.
struct LatentUnit {
  attention::Found found;
  int split = 0;
  int first_query = 0;
  int query_count = 0;  // of the sequence
  int begin = 0;        // first position
  int end = 0;          // behind the last position that one of its rows may see
  FOURFOLD_DEVICE int tiles() const { return (end - begin + kTilePositions - 1) / kTilePositions; }
};

template <class Row, class Cta>
FOURFOLD_DEVICE LatentUnit find_unit(Cta cta, const AttendParams& params, std::int64_t index) {
  const auto shares_of = [&](int row_count) {
    return static_cast<int>(vector_tiles(row_count, params.heads, Row::tile));
  };
  const auto units_of = [&](const step::SequencePlace& place) {
    const int shares = shares_of(place.row_count);
    return Row::is_prompt ? shares : attention::split_count(place.position + place.row_count - 1) * shares;
  };
  const auto slots_of = [](const step::SequencePlace& place) {
    return static_cast<int>(attention::slots_of(place.position + place.row_count - 1, place.row_count));
  };
  LatentUnit unit;
  unit.found = attention::find_item(cta, params.tables, index, units_of, slots_of);
  const attention::Found& found = unit.found;
  if (found.sequence < 0) return unit;
  const int shares = shares_of(found.row_count), last = found.position + found.row_count - 1;
  unit.query_count = found.row_count * params.heads;
  if constexpr (Row::is_prompt) {
    // The last rows see most: they start first.
    unit.first_query = (shares - 1 - found.item) * Row::tile;
    int last_query = unit.first_query + Row::tile - 1;
    if (last_query >= unit.query_count) last_query = unit.query_count - 1;
    unit.end = found.position + last_query / params.heads + 1;
  } else {
    // The last splits are the longest.
    unit.split = attention::split_count(last) - 1 - found.item / shares;
    unit.first_query = found.item % shares * Row::tile;
    unit.begin = attention::split_begin(unit.split);
    const int next = attention::split_begin(unit.split + 1);
    unit.end = next < last + 1 ? next : last + 1;
  }
  return unit;
}

}  // namespace fourfold::mla
