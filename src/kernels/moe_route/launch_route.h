// The routing kernels in their order, by token count.
#pragma once

#include <string>

#include "kernels/launch/machine.h"
#include "kernels/moe_route/route_params.h"

namespace fourfold::moe_route {

// The rows that rank: [of softmax scores, of every rule].
struct RouteRows {
  kernels::RowHandle table[2], choose[2];
  kernels::RowHandle scan, place;
};
inline RouteRows find_route_rows(const kernels::Machine& machine) {
  const auto find = [&](const std::string& name) { return machine.required(kernels::RowKind::basic, name); };
  return {{find(kTableRow), find(any_rule_name(kTableRow))},
          {find(kChooseRow), find(any_rule_name(kChooseRow))},
          find(kScanRow),
          find(kPlaceRow)};
}

// More than kSmallTokens tokens need the count tables of the params.
inline void launch_route(kernels::Machine& machine, const RouteRows& rows, const RouteParams& params) {
  const int chunks = chunk_count(params.tokens), rule = needs_any_rule(params.rule) ? 1 : 0;
  if (!in_one_block(params.tokens, params.experts)) {
    const int staging = moe_tokens::stage_blocks(params.stage, machine.walkers(rows.choose[rule], 4));
    machine.launch(rows.choose[rule], chunks + staging, params);
  }
  if (params.tokens <= kSmallTokens) return machine.launch(rows.table[rule], 1, params);
  if (scans_apart(params.tokens))
    machine.launch(rows.scan, (params.experts + kScanExperts - 1) / kScanExperts, params);
  machine.launch(rows.place, chunks, params);
}

}  // namespace fourfold::moe_route
