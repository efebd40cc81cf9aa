// The kernels of a caller's groups as rows.
#pragma once

#include <string>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe_group/moe_group.h"

namespace fourfold::moe_group {

template <class ArchT>
struct TilesRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = TileParams;
  using Storage = TileStorage;
  static constexpr int threads = kTileThreads;
  static constexpr bool wants_cache = true;
  static std::string name() { return kTilesRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<TilesRow>(kTilesRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    group_tiles(cta, params);
  }
};

template <class ArchT>
struct ScatterRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = ScatterParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kScatterThreads;
  static constexpr bool wants_cache = true;
  static std::string name() { return kScatterRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<ScatterRow>(kScatterRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    group_scatter(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::RowList<TilesRow<Arch>, ScatterRow<Arch>>;

}  // namespace fourfold::moe_group
