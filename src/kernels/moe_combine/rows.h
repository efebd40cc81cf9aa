// The combine kernel as rows, by what the experts' rows hold.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe_combine/combine_norm.h"
#include "kernels/moe_combine/moe_combine.h"

namespace fourfold::moe_combine {

template <class ArchT, class Element>
struct CombineRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = CombineParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kThreads;
  static constexpr bool is_f32 = std::is_same_v<Element, float>;
  static std::string name() { return is_f32 ? kF32Row : kBf16Row; }
  static plan::RowFacts facts() {
    return kernels::basic_facts<CombineRow>("combine", is_f32 ? "f32" : "bf16");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    combine<Element>(cta, params);
  }
};

template <class ArchT>
struct CombineNormRow {
  using Arch = ArchT;
  using Params = CombineNormParams;
  using Storage = dense::NormStorage;
  static constexpr int threads = 32 * dense::kNormWarps;
  static constexpr int blocks_per_sm = 1;
  static std::string name() { return kNormRow; }
  static plan::RowFacts facts() {
    return kernels::step_facts<CombineNormRow>("combine_norm", "decode", "f32");
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    combine_norm(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::RowList<CombineRow<Arch, float>, CombineRow<Arch, std::uint16_t>,
                          CombineNormRow<typename Chip::Shared>>;

}  // namespace fourfold::moe_combine
