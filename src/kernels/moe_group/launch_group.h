// Launches of the kernels that turn a caller's groups into token tiles.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe_group/group_params.h"

namespace fourfold::moe_group {

struct GroupRows {
  kernels::RowHandle tiles, scatter;
};
inline GroupRows find_group_rows(const kernels::Machine& machine) {
  return {machine.required(kernels::RowKind::basic, kTilesRow),
          machine.required(kernels::RowKind::basic, kScatterRow)};
}

inline void launch_tiles(kernels::Machine& machine, const GroupRows& rows, const TileParams& params) {
  machine.launch(rows.tiles, tile_blocks(params, machine.sm_count()), params);
}
inline void launch_scatter(kernels::Machine& machine, const GroupRows& rows, const ScatterParams& params) {
  machine.launch(rows.scatter, machine.walkers(rows.scatter, 4), params);
}

}  // namespace fourfold::moe_group
