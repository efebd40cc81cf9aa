// The all-reduce as rows. Blocks of a launch: AllReduceParams::blocks a rank.
#pragma once

#include <string>

#include "kernels/all_reduce/all_reduce.h"
#include "kernels/launch/row.h"

namespace fourfold::all_reduce {

template <class ArchOf, Way way>
struct AllReduceRow {
  using Arch = ArchOf;
  using Params = AllReduceParams;
  using Storage = ExchangeStorage;
  static constexpr int threads = kThreads;
  static constexpr int blocks_per_sm = 2;
  static constexpr bool together = true;  // blocks wait for those of other ranks
  static std::string name() { return reduce_row(way); }
  static plan::RowFacts facts() {
    return kernels::step_facts<AllReduceRow>("all_reduce", way_name(way), "f32");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    if constexpr (way == Way::two_shot)
      all_reduce_two_shot(cta, params);
    else
      all_reduce<way>(cta, params);
  }
};

template <class ArchOf, Way way>
struct AllReduceNormRow {
  using Arch = ArchOf;
  using Params = AllReduceParams;
  using Storage = NormStorage;
  static constexpr int threads = kThreads;
  static constexpr int blocks_per_sm = 1;
  static constexpr bool together = true;
  static std::string name() { return reduce_norm_row(way); }
  static plan::RowFacts facts() {
    // A constant: facts view it.
    constexpr const char* role = way == Way::host ? "host norm" : "one_shot norm";
    return kernels::step_facts<AllReduceNormRow>("all_reduce", role, "f32");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    all_reduce_norm<way>(cta, params);
  }
};

template <class ArchOf, Way way>
struct AllGatherRow {
  using Arch = ArchOf;
  using Params = AllReduceParams;
  using Storage = ExchangeStorage;
  static constexpr int threads = kThreads;
  static constexpr int blocks_per_sm = 2;
  static constexpr bool together = true;
  static std::string name() { return gather_row(way); }
  static plan::RowFacts facts() {
    return kernels::step_facts<AllGatherRow>("all_gather", way_name(way), "f32");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    all_gather<way>(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Shared>
using Rows = moe::RowList<AllReduceRow<Arch, Way::one_shot>, AllReduceRow<Arch, Way::two_shot>,
                          AllReduceRow<Arch, Way::host>, AllReduceNormRow<Arch, Way::one_shot>,
                          AllReduceNormRow<Arch, Way::host>, AllGatherRow<Arch, Way::one_shot>,
                          AllGatherRow<Arch, Way::host>>;

}  // namespace fourfold::all_reduce
