// The shared expert's second matrix and the tables of routing in one launch: the first block makes the
// tables, the others multiply. Both need what the router's launch left and nothing of each other, and each
// alone costs a boundary between kernels that is longer than its work (docs/decisions/0043).
//
// For as many tokens and experts as the block of a dense matrix has warps and threads: has_dense_table(); and
// for twice the tokens, each warp with two: has_many_table().
#pragma once

#include <string>

#include "base/macros.h"
#include "kernels/dense/dense_table_params.h"
#include "kernels/launch/row.h"
#include "kernels/moe_route/few_tables.h"

namespace fourfold::dense {

// The machine without the grid's first block.
template <class Cta>
struct BehindFirst : Cta {
  FOURFOLD_DEVICE explicit BehindFirst(Cta cta) : Cta(cta) {}
  FOURFOLD_DEVICE int block() const { return Cta::block() - 1; }
  FOURFOLD_DEVICE int blocks() const { return Cta::blocks() - 1; }
};

template <class DenseT, bool AnyRule>
struct DenseTableRow {
  using Arch = typename DenseT::Arch;
  using Format = typename DenseT::Format;
  using Params = DenseTableParams;
  using Storage = typename DenseT::Storage;
  static_assert(sizeof(moe_route::OneBlockStorage) <= sizeof(Storage) &&
                DenseT::threads == kDenseTableThreads);
  static constexpr int threads = DenseT::threads;
  static constexpr int blocks_per_sm = DenseT::blocks_per_sm;
  static constexpr int register_blocks = DenseT::register_blocks;

  static constexpr const char* products = "mma";
  static std::string name() { return dense_table_row(Format::name, AnyRule); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<DenseTableRow>(kDenseTable, "decode", Format::name);
    facts.m = 16 * DenseT::tiles;
    facts.n = kTokens;
    facts.k = moe::kSegmentColumns;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    if (cta.block() == 0)
      moe_route::route_one_block<AnyRule>(cta, params.route);
    else
      DenseT::run(BehindFirst<Cta>(cta), params.dense);
  }
};

template <class ManyT, bool AnyRule>
struct ManyTableRow {
  using Arch = typename ManyT::Arch;
  using Format = typename ManyT::Format;
  using Params = ManyTableParams;
  using Storage = typename ManyT::Storage;
  static_assert(sizeof(moe_route::OneBlockStorage) <= sizeof(Storage) &&
                ManyT::threads == kDenseTableThreads);
  static constexpr int threads = ManyT::threads;
  static constexpr int blocks_per_sm = ManyT::blocks_per_sm;
  static constexpr int register_blocks = ManyT::register_blocks;

  static constexpr const char* products = "mma";
  static std::string name() { return many_table_row(Format::name, AnyRule); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<ManyTableRow>(kManyTable, "decode", Format::name);
    facts.m = 16 * ManyT::tiles;
    facts.n = ManyT::n;
    facts.k = moe::kSegmentColumns;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    if (cta.block() == 0)
      moe_route::route_one_block<AnyRule, kManyTableTurns>(cta, params.route);
    else
      ManyT::run(BehindFirst<Cta>(cta), params.many);
  }
};

}  // namespace fourfold::dense
