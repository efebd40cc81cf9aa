// The routing kernels in their order, by token count.
#pragma once

#include "kernels/launch/machine.h"
#include "kernels/moe_route/route_params.h"

namespace fourfold::moe_route {

// More than kSmallTokens tokens need the count tables of the params.
inline void launch_route(kernels::Machine& machine, const RouteParams& params) {
  if (!in_one_block(params.tokens, params.experts)) machine.route_choose(params);
  if (params.tokens <= kSmallTokens) return machine.route_table(params);
  if (scans_apart(params.tokens)) machine.route_scan(params);
  machine.route_place(params);
}

}  // namespace fourfold::moe_route
