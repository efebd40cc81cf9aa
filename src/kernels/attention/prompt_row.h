// Rows of prompt attention: with mma everywhere, and with wgmma on Hopper.
#pragma once

#include <string>

#include "base/macros.h"
#include "kernels/attention/attend_prompt.h"
#include "kernels/attention/attend_prompt_wgmma.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/page_layout.h"
#include "kernels/launch/row.h"
#include "plan/budget.h"

namespace fourfold::attention {

template <class Layout, int Stages>
struct PromptStorage {
  alignas(1024) unsigned char query[kTileRows * Layout::head_dim * 2];
  alignas(1024) unsigned char slot[Stages][Layout::piece_bytes];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// Windowed: with code for a window and sinks (attention_params.h).
template <class ArchT, class KvT, int HeadDim, bool Windowed = false>
struct PromptRow {
  using Arch = ArchT;
  using Layout = PageLayout<KvT, HeadDim>;
  using Params = PromptParams;
  static constexpr int head_dim = HeadDim;
  static constexpr bool is_windowed = Windowed;
  static constexpr int heads = 1;
  static constexpr int math_warps = kTileRows / 16;
  static constexpr int threads = 32 * math_warps;
  static constexpr int blocks_per_sm = 1;
  static constexpr int copy_pieces = 1;
  template <int Stages>
  using StorageOf = PromptStorage<Layout, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, blocks_per_sm), 8>();
  using Storage = StorageOf<stages>;
  static_assert(stages >= 4);

  static constexpr const char* products = "mma";
  static std::string name() { return prompt_row(HeadDim, KvT::name, false, Windowed); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PromptRow>("attend_prompt", "prompt", KvT::name);
    facts.m = kTileRows;
    facts.n = kPageTokens;
    facts.k = HeadDim;
    facts.stages = stages;
    facts.is_windowed = Windowed;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend_prompt<PromptRow>(cta, params);
  }
};

template <class Layout, int Stages>
struct PromptWgmmaStorage {
  alignas(1024) unsigned char query[2][kTileRows * Layout::head_dim * 2];
  alignas(1024) unsigned char slot[Stages][Layout::page_bytes];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
  device::Mbarrier cleared;  // the last V's tail
  device::Mbarrier seen;     // that by all math warps
};

// bf16 pages only: wgmma reads its operand as it lies.
template <class ArchT, int HeadDim, bool Windowed = false>
struct PromptWgmmaRow {
  using Arch = ArchT;
  using Layout = PageLayout<Bf16Kv, HeadDim>;
  using Params = PromptParams;
  static constexpr int head_dim = HeadDim;
  static constexpr bool is_windowed = Windowed;
  static constexpr int heads = 2;
  static constexpr int math_warps = 8;
  static constexpr int threads = 32 * (math_warps + 4);
  static constexpr int blocks_per_sm = 1;
  static constexpr int math_registers = 232;
  static constexpr int load_registers = 40;
  static constexpr int copy_pieces = Layout::pieces;
  template <int Stages>
  using StorageOf = PromptWgmmaStorage<Layout, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, blocks_per_sm), 6>();
  using Storage = StorageOf<stages>;
  static_assert(stages >= 4);
  static_assert(
      plan::FitsRegisterFile<ArchT::facts.registers_per_sm, plan::RoleRegisters<math_warps, math_registers>,
                             plan::RoleRegisters<4, load_registers>>::value);

  static constexpr const char* products = "wgmma";
  static std::string name() { return prompt_row(HeadDim, "bf16", true, Windowed); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PromptWgmmaRow>("attend_prompt", "prompt", "bf16");
    facts.m = heads * kTileRows;
    facts.n = kPageTokens;
    facts.k = HeadDim;
    facts.stages = stages;
    facts.is_windowed = Windowed;
    facts.math_warps = math_warps;
    facts.producer_warps = 4;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend_prompt_wgmma<PromptWgmmaRow>(cta, params);
  }
};

}  // namespace fourfold::attention
