// The arguments of dense_table, and what it is for.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"
#include "kernels/dense/dense_params.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_route/route_rule.h"

namespace fourfold::dense {

inline constexpr const char* kDenseTable = "dense_table";
inline std::string dense_table_row(std::string_view format, bool any_rule) {
  const std::string row = fourfold::format("{} {} w8", kDenseTable, format);
  return any_rule ? moe_route::any_rule_name(row) : row;
}

// Blocks: one more than those of the matrix.
struct DenseTableParams {
  DenseParams dense;
  moe_route::RouteParams route;
};

// A warp a token and a thread an expert, of the eight warps that a dense matrix has.
inline constexpr int kDenseTableThreads = 256;
constexpr bool has_dense_table(int tokens, int experts) {
  return moe_route::in_one_block(tokens, experts) &&
         moe_route::table_threads(tokens, experts) <= kDenseTableThreads;
}

}  // namespace fourfold::dense
