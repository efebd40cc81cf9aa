// The token kernels as rows.
#pragma once

#include <string>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe_tokens/moe_tokens.h"

namespace fourfold::moe_tokens {

template <class ArchT>
struct StageRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = StageParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kThreads;
  static std::string name() { return kStageRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<StageRow>(kStageRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    stage_tokens(cta, params);
  }
};

template <class ArchT>
struct QuantizeRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = QuantizeParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kThreads;
  static std::string name() { return kQuantizeRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<QuantizeRow>(kQuantizeRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    quantize_tokens(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::RowList<StageRow<Arch>, QuantizeRow<Arch>>;

}  // namespace fourfold::moe_tokens
