// The arguments of dense_table and of dense_many_table, and what they are for.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/many_params.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_route/route_rule.h"

namespace fourfold::dense {

inline constexpr const char* kDenseTable = "dense_table";
inline std::string dense_table_row(std::string_view format, bool any_rule) {
  const std::string row = fourfold::format("{} {} w8", kDenseTable, format);
  return any_rule ? moe_route::any_rule_name(row) : row;
}

// Of nine to sixteen tokens.
inline constexpr const char* kManyTable = "dense_many_table";
inline std::string many_table_row(std::string_view format, bool any_rule) {
  const std::string row = fourfold::format("{} {} w8", kManyTable, format);
  return any_rule ? moe_route::any_rule_name(row) : row;
}

// Blocks: one more than those of the matrix.
struct DenseTableParams {
  DenseParams dense;
  moe_route::RouteParams route;
};
struct ManyTableParams {
  ManyParams many;
  moe_route::RouteParams route;
};

// A warp a token and a thread an expert, of the eight warps that a dense matrix has.
inline constexpr int kDenseTableThreads = 256;
constexpr bool has_dense_table(int tokens, int experts) {
  return moe_route::in_one_block(tokens, experts) &&
         moe_route::table_threads(tokens, experts) <= kDenseTableThreads;
}
// Beyond: a warp has two tokens, and an expert still needs a thread.
inline constexpr int kManyTableTurns = 2;
constexpr bool has_many_table(int tokens, int experts) {
  return tokens > kTokens && tokens <= kManyTableTurns * kDenseTableThreads / 32 &&
         moe_route::in_one_block(tokens, experts) && experts <= kDenseTableThreads;
}

}  // namespace fourfold::dense
