// All that attention reads of few generated rows, in one launch: the rows of the cache, the turned part of
// every query head and the absorbed one. Each is short, and a boundary between kernels is as long
// (docs/decisions/0047). The blocks that only copy come first: they are done when the last of the others
// start.
#pragma once

#include "base/macros.h"
#include "kernels/mla/head_linear.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/prepare_latent.h"

namespace fourfold::mla {

// The machine without the grid's first blocks.
template <class Cta>
struct BlocksBehind : Cta {
  int first;
  FOURFOLD_DEVICE BlocksBehind(Cta cta, int first_block) : Cta(cta), first(first_block) {}
  FOURFOLD_DEVICE int block() const { return Cta::block() - first; }
};

// A warp a row.
template <class Row, class Cta>
FOURFOLD_DEVICE void cache_rows(Cta cta, const LatentRowsParams& params) {
  const int row = cta.block() * kLatentWarps + cta.warp();
  step::RowPlace place{-1, 0, 0, 0};
  if (row < params.tables.row_limit) place = cta.load(params.tables.rows + row);
  unsigned char* page = nullptr;
  if (place.sequence >= 0) page = page_of<Row>(cta, params, place);
  cta.wait_predecessors();
  cta.release_successors();
  if (place.sequence >= 0) cache_row<Row>(cta, params, row, place, page);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void absorb_queries(Cta cta, const AbsorbParams& params) {
  const int turned = params.cache_blocks, absorbed = turned + params.turn_blocks;
  if (cta.block() < turned)
    cache_rows<Row>(cta, params.cache);
  else if (cta.block() < absorbed)
    turn_queries<Row>(BlocksBehind<Cta>(cta, turned), params.turn);
  else
    head_linear<Row>(BlocksBehind<Cta>(cta, absorbed), params.absorb);
}

}  // namespace fourfold::mla
