// The routing kernels in their order, by token count.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe_route/route_params.h"

namespace fourfold::moe_route {

struct RouteRows {
  kernels::RowHandle table, choose, scan, place;
};
inline RouteRows find_route_rows(const kernels::Machine& machine) {
  using enum kernels::RowKind;
  return {machine.required(basic, kTableRow), machine.required(basic, kChooseRow),
          machine.required(basic, kScanRow), machine.required(basic, kPlaceRow)};
}

// More than kSmallTokens tokens need the count tables of the params.
inline void launch_route(kernels::Machine& machine, const RouteRows& rows, const RouteParams& params) {
  const int chunks = chunk_count(params.tokens);
  if (!in_one_block(params.tokens, params.experts)) {
    const int staging = moe_tokens::stage_blocks(params.stage, machine.walkers(rows.choose, 4));
    machine.launch(rows.choose, chunks + staging, params);
  }
  if (params.tokens <= kSmallTokens) return machine.launch(rows.table, 1, params);
  if (scans_apart(params.tokens))
    machine.launch(rows.scan, (params.experts + kScanExperts - 1) / kScanExperts, params);
  machine.launch(rows.place, chunks, params);
}

}  // namespace fourfold::moe_route
