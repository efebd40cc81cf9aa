// Two matrices of different formats with the same normed input, in one launch: the first blocks multiply the
// first, the others the second. A checkpoint that keeps its router or its gates in bf16 beside FP8 or FP4
// projections would otherwise pay a launch, and its boundary, for a matrix of a few strips.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/macros.h"
#include "kernels/dense/dense_few.h"
#include "kernels/launch/row.h"

namespace fourfold::dense {

struct PairParams {
  DenseParams first, second;
  std::int32_t first_blocks;  // the grid has more
};

// The machine with some of the grid's blocks only: those before params.first_blocks, or the others. It asks
// the launch's arguments anew, which costs no register.
template <class Cta, bool IsSecond, class Params = PairParams>
struct BlockRange : Cta {
  const Params& params;
  FOURFOLD_DEVICE BlockRange(Cta cta, const Params& of) : Cta(cta), params(of) {}
  FOURFOLD_DEVICE int block() const { return Cta::block() - (IsSecond ? params.first_blocks : 0); }
  FOURFOLD_DEVICE int blocks() const {
    return IsSecond ? Cta::blocks() - params.first_blocks : params.first_blocks;
  }
};

template <class FirstT, class SecondT>
struct PairRow {
  using First = FirstT;
  using Second = SecondT;
  using Arch = typename Second::Arch;
  using Format = typename Second::Format;
  using Params = PairParams;
  using Storage = std::conditional_t<(sizeof(typename First::Storage) > sizeof(typename Second::Storage)),
                                     typename First::Storage, typename Second::Storage>;
  static constexpr int threads = Second::threads;
  static constexpr int blocks_per_sm = Second::blocks_per_sm;
  static constexpr int register_blocks = Second::register_blocks;
  static_assert(First::threads == threads && std::is_same_v<typename First::Prologue, NormedRows>);

  static constexpr bool is_near = !requires { Second::ring_bytes; };  // dense_near.h: it has no ring
  static constexpr const char* products = "mma";
  static std::string name() {
    return format("dense_pair {} {} w{}{}", First::Format::name, Second::Format::name, Second::warps,
                  is_near ? " near" : "");
  }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PairRow>("dense_pair", "decode", Format::name);
    facts.norms_rows = true;
    facts.m = 16 * Second::tiles;
    facts.n = kTokens;
    facts.k = moe::kSegmentColumns;
    if constexpr (!is_near) facts.stages = Second::ring_bytes / Second::stage_bytes;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const PairParams& params) {
    if (cta.block() < params.first_blocks)
      First::run(BlockRange<Cta, false>(cta, params), params.first);
    else
      Second::run(BlockRange<Cta, true>(cta, params), params.second);
  }
};

}  // namespace fourfold::dense
