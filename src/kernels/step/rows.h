// The small step kernels as rows.
#pragma once

#include <string>

#include "kernels/launch/row.h"
#include "kernels/step/add_bias.h"
#include "kernels/step/add_gated.h"
#include "kernels/step/select_norm.h"

namespace fourfold::step {

template <class ArchOf>
struct SelectNormRow {
  using Arch = ArchOf;
  using Params = SelectNormParams;
  using Storage = dense::NormStorage;
  static constexpr int threads = 32 * dense::kNormWarps;
  static constexpr int blocks_per_sm = 2;
  static std::string name() { return kSelectNorm; }
  static plan::RowFacts facts() { return kernels::step_facts<SelectNormRow>(kSelectNorm, "any"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    select_norm(cta, params);
  }
};

template <class ArchOf>
struct AddGatedRow {
  using Arch = ArchOf;
  using Params = AddGatedParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kAddThreads;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return kAddGated; }
  static plan::RowFacts facts() { return kernels::step_facts<AddGatedRow>(kAddGated, "any"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    add_gated(cta, params);
  }
};

template <class ArchOf>
struct AddBiasRow {
  using Arch = ArchOf;
  using Params = AddBiasParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kAddThreads;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return kAddBias; }
  static plan::RowFacts facts() { return kernels::step_facts<AddBiasRow>(kAddBias, "any"); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    add_bias(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Shared>
using Rows = moe::RowList<SelectNormRow<Arch>, AddGatedRow<Arch>, AddBiasRow<Arch>>;

}  // namespace fourfold::step
