// GEMM1 for one to four tokens, streamed: every block routes as few_gate_up does, then its warps walk the
// strips as moe_stream does, weights straight into registers. For a K whose segments do not fill the groups
// of few_gate_up, and for epilogues that it does not have.
#pragma once

#include "base/macros.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_few/few_route.h"
#include "kernels/moe_stream/moe_stream.h"

namespace fourfold::moe_few {

template <class Row>
struct StreamStorage {
  FewRoute route;
  typename Row::Storage sums;
};

// The tile list that the block has made for itself.
struct RoutedTiles {
  const FewRoute& route;
  template <class Cta>
  FOURFOLD_DEVICE int expert(Cta cta, int index) const {
    return cta.load_shared(&route.tile_expert[index]);
  }
  template <class Cta>
  FOURFOLD_DEVICE moe::TokenTile tile(Cta cta, int index) const {
    return {expert(cta, index), moe::kSlotGroup * index, cta.load_shared(&route.tile_count[index]), 0};
  }
  template <class Cta>
  FOURFOLD_DEVICE int token_row(Cta cta, const moe::GemmParams&, int index, const moe::TokenTile&,
                                int place) const {
    return token_of_entry(cta.load_shared(&route.tile_entry[index][place]));
  }
};

// Row: a moe_stream row that says which rules it ranks by. params.tiles, tile_count and slot_token are not
// read; params.out rows are slots (8 per tile).
template <class Row, class Cta>
FOURFOLD_DEVICE void few_stream(Cta cta, const FewParams& few, const moe::GemmParams& params) {
  static_assert(Row::warps >= kFewTokens, "a warp routes a token");
  auto& storage = cta.template shared<StreamStorage<Row>>();
  prepare_route(cta, few, storage.route);
  cta.sync_block();         // the tables are prepared
  cta.wait_predecessors();  // logits and tokens
  cta.release_successors();
  const int tiles = route_few<Row, false>(cta, few, storage.route, cta.warp());
  moe_stream::stream_tiles<Row>(cta, params, RoutedTiles{storage.route}, tiles, storage.sums, false);
}

}  // namespace fourfold::moe_few
