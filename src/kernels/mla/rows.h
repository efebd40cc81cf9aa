// The rows of latent attention: width of the latent, query vectors of a block, and what each kernel adds.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/combine.h"
#include "kernels/launch/row.h"
#include "kernels/mla/absorb_queries.h"
#include "kernels/mla/attend_latent.h"
#include "kernels/mla/attend_latent_wgmma.h"
#include "kernels/mla/combine_expand.h"
#include "kernels/mla/head_linear.h"
#include "kernels/mla/latent_page.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/prepare_latent.h"
#include "kernels/moe/row_list.h"
#include "plan/budget.h"

namespace fourfold::mla {

template <class Page, int Tile, int Stages>
struct AttendStorage {
  alignas(1024) unsigned char tile[Stages][Page::tile_bytes];
  alignas(128) float score[kQuarters][Tile * kTilePositions];
  alignas(128) unsigned char weights[Tile * kTilePositions * 2];  // bf16, rows of 64 bytes, swizzled
  float factor[Tile];
  float inverse[Tile];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// Eight warps. Scores: a quarter of the columns, 16 vectors and all positions each, or with 16 vectors half
// of the positions. Values: a panel of columns and all vectors each; where there are fewer panels than warps,
// the vectors are dealt as well, and small models leave warps without any.
template <class ArchT, int Latent, int TileN, bool Prompt>
struct AttendLatentRow {
  using Arch = ArchT;
  using Page = LatentPage<Latent, kPanelColumns>;
  using Params = AttendParams;
  static constexpr bool is_prompt = Prompt;
  static constexpr int tile = TileN;        // query vectors of a block
  static constexpr int tiles = TileN / 16;  // m16 operands
  static constexpr int warps = 8;
  static constexpr int threads = 32 * warps;
  static constexpr int thread_scores = TileN * kTilePositions / threads;
  static constexpr int blocks_per_sm = 1;
  static_assert(TileN == 16 || TileN == 32);

  static constexpr int key_groups = warps / (kQuarters * tiles);
  static constexpr int key_tiles =
      kTilePositions / 8 / key_groups;  // n8 tiles of positions that a warp scores
  static constexpr int score_tile(int warp) { return warp / kQuarters % tiles; }
  static constexpr int key_group(int warp) { return warp / (kQuarters * tiles); }

  static constexpr int panel_warps = Page::value_panels < warps ? Page::value_panels : warps;
  static constexpr int warp_panels = Page::value_panels / panel_warps;
  static constexpr int vector_groups = warps / panel_warps;
  static constexpr int value_tiles = tiles > vector_groups ? tiles / vector_groups : 1;
  static constexpr int value_tile(int warp) { return warp / panel_warps * value_tiles; }
  static constexpr int value_panel(int warp, int panel) { return warp % panel_warps + panel * panel_warps; }
  static constexpr bool has_values(int warp) { return value_tile(warp) < tiles; }
  static_assert(panel_warps * warp_panels == Page::value_panels && panel_warps * vector_groups == warps);

  template <int Stages>
  using StorageOf = AttendStorage<Page, TileN, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, blocks_per_sm), 4>();
  using Storage = StorageOf<stages>;
  static_assert(stages >= 2, "the next tile must be on its way while this one is multiplied");

  static constexpr const char* products = "mma";
  static std::string name() { return Prompt ? prompt_row(Latent, TileN) : attend_row(Latent, TileN); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<AttendLatentRow>(
        Prompt ? "attend_latent_prompt" : "attend_latent", Prompt ? "prompt" : "decode");
    facts.m = TileN;
    facts.n = kTilePositions;
    facts.k = Page::width;
    facts.stages = stages;
    facts.head_dim = Latent;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend_latent<AttendLatentRow>(cta, params);
  }
};

template <class Page, int QuerySets, int Stages>
struct PromptWgmmaStorage {
  alignas(1024) unsigned char query[QuerySets][kGroupVectors * Page::width * 2];
  alignas(1024) unsigned char page[Stages][Page::page_bytes];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// Prompts with wgmma: its own bits, so on Hopper every prompt row has them.
template <class ArchT, int Latent>
struct PromptLatentWgmmaRow {
  using Arch = ArchT;
  using Page = LatentPage<Latent, kPanelColumns>;
  using Params = AttendParams;
  static constexpr bool is_prompt = true;
  static constexpr int tile = wgmma_tile(Latent);
  static constexpr int query_sets = tile / kGroupVectors;
  static constexpr int query_set(int group) { return query_sets == 1 ? 0 : group; }
  // Groups with the same vectors share the columns.
  static constexpr int group_columns = query_sets == 1 ? Latent / kMathGroups : Latent;
  static constexpr int first_panel(int group) {
    return query_sets == 1 ? group * group_columns / kPanelColumns : 0;
  }
  static_assert(group_columns <= 256, "more sums than a thread has registers");

  static constexpr int math_warps = 4 * kMathGroups;
  static constexpr int threads = 32 * (math_warps + 4);
  static constexpr int blocks_per_sm = 1;
  static constexpr int math_registers = 232;
  static constexpr int load_registers = 40;
  template <int Stages>
  using StorageOf = PromptWgmmaStorage<Page, query_sets, Stages>;
  static constexpr int stages =
      plan::deepest_stages<StorageOf, plan::smem_budget_for(ArchT::facts, blocks_per_sm), 4>();
  using Storage = StorageOf<stages>;
  static_assert(stages >= 2, "the next page must be on its way while this one is multiplied");
  static_assert(
      plan::FitsRegisterFile<ArchT::facts.registers_per_sm, plan::RoleRegisters<math_warps, math_registers>,
                             plan::RoleRegisters<4, load_registers>>::value);

  static constexpr const char* products = "wgmma";
  static std::string name() { return prompt_row(Latent, tile, true); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PromptLatentWgmmaRow>("attend_latent_prompt", "prompt");
    facts.m = tile;
    facts.n = kPageTokens;
    facts.k = Page::width;
    facts.stages = stages;
    facts.head_dim = Latent;
    facts.math_warps = math_warps;
    facts.producer_warps = 4;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attend_latent_wgmma<PromptLatentWgmmaRow>(cta, params);
  }
};

// The splits of rows of 512 columns. Eight of them are 128 registers of a lane: one block an SM.
template <class ArchT>
struct CombineLatentRow {
  using Arch = ArchT;
  using Params = attention::CombineParams;
  static constexpr int head_dim = 512;
  static constexpr bool is_windowed = false;
  using Storage = attention::CombineStorage<head_dim>;
  static constexpr int threads = 32 * attention::kCombineWarps;
  static constexpr int blocks_per_sm = 1;
  static std::string name() { return attention::combine_row(head_dim); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<CombineLatentRow>("combine splits", "decode", "f32");
    facts.head_dim = head_dim;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    attention::combine<CombineLatentRow>(cta, params);
  }
};

// Element: of the projection's rows, float (generated rows) or std::uint16_t (bf16, prompt rows).
template <class ElementT>
inline constexpr const char* kElementName = std::is_same_v<ElementT, float> ? "f32" : "bf16";

template <class ArchT, int Latent, class ElementT>
struct LatentRowsRow {
  using Arch = ArchT;
  using Page = LatentPage<Latent, kPanelColumns>;
  using Element = ElementT;
  using Params = LatentRowsParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32 * kLatentWarps;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return latent_rows_row(Latent, kElementName<Element>); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<LatentRowsRow>("latent_rows", "both");
    facts.head_dim = Latent;
    facts.from_f32 = std::is_same_v<Element, float>;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    latent_rows<LatentRowsRow>(cta, params);
  }
};

template <class ArchT, class ElementT>
struct TurnQueriesRow {
  using Arch = ArchT;
  using Element = ElementT;
  using Params = TurnQueriesParams;
  using Storage = kernels::NoStorage;
  static constexpr int threads = 32 * kLatentWarps;
  static constexpr int blocks_per_sm = 4;
  static std::string name() { return turn_queries_row(kElementName<Element>); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<TurnQueriesRow>("turn_queries", "both");
    facts.from_f32 = std::is_same_v<Element, float>;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    turn_queries<TurnQueriesRow>(cta, params);
  }
};

// Tokens: rows of a warp, 16 or 32.
template <class ArchT, bool Transposed, class ElementT, int Tokens>
struct HeadLinearRow {
  using Arch = ArchT;
  using Element = ElementT;
  using Params = HeadLinearParams;
  using Storage = kernels::NoStorage;
  static constexpr bool transposed = Transposed;
  static constexpr int tokens = Tokens;
  static constexpr int tiles = Tokens / 16;
  static constexpr int steps = tiles > 1 ? 1 : kEarlySteps;
  static constexpr int threads = 32 * kLatentWarps;
  static constexpr int blocks_per_sm = 2;
  // Measured (docs/decisions/0047): without it few users lose 1 to 2 %. absorb_queries was not tried with it.
  static constexpr bool wants_cache = true;
  static constexpr const char* products = "mma";
  static std::string name() { return head_linear_row(Transposed, kElementName<Element>, Tokens); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<HeadLinearRow>("head_linear", "both");
    facts.m = Tokens;
    facts.n = kHeadColumns;
    facts.k = kStepColumns;
    facts.from_f32 = std::is_same_v<Element, float>;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    head_linear<HeadLinearRow>(cta, params);
  }
};

// Few generated rows: what attention reads, and what it left.
template <class ArchT, int Latent>
struct AbsorbRow {
  using Arch = ArchT;
  using Page = LatentPage<Latent, kPanelColumns>;
  using Element = float;
  using Params = AbsorbParams;
  using Storage = kernels::NoStorage;
  // As head_linear's rows have them.
  static constexpr bool transposed = true;
  static constexpr int tokens = kAbsorbTokens;
  static constexpr int tiles = tokens / 16;
  static constexpr int steps = kEarlySteps;
  static constexpr int threads = 32 * kLatentWarps;
  static constexpr int blocks_per_sm = 2;
  static constexpr const char* products = "mma";
  static std::string name() { return absorb_row(Latent); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<AbsorbRow>("absorb_queries", "decode");
    facts.m = tokens;
    facts.n = kHeadColumns;
    facts.k = kStepColumns;
    facts.head_dim = Latent;
    facts.from_f32 = true;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    absorb_queries<AbsorbRow>(cta, params);
  }
};

template <class ArchT, int Latent>
struct CombineExpandRow {
  using Arch = ArchT;
  using Params = CombineExpandParams;
  using Storage = CombineExpandStorage<Latent>;
  // As combine's rows have them.
  static constexpr int head_dim = Latent;
  static constexpr bool is_windowed = false;
  static constexpr int threads = 32 * attention::kCombineWarps;
  static constexpr int blocks_per_sm = Latent > 256 ? 1 : 2;
  static_assert(8 * attention::kCombineWarps == kExpandColumns, "eight outputs a warp");
  static constexpr const char* products = "mma";
  static std::string name() { return combine_expand_row(Latent); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<CombineExpandRow>("combine_expand", "decode");
    facts.n = kExpandColumns;
    facts.k = kStepColumns;
    facts.head_dim = Latent;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    combine_expand<CombineExpandRow>(cta, params);
  }
};

// clang-format off
template <class Arch, int Latent>
using RowsOfLatent = moe::RowList<
    AttendLatentRow<Arch, Latent, 16, false>,
    AttendLatentRow<Arch, Latent, 32, false>,
    AttendLatentRow<Arch, Latent, 16, true>,
    AttendLatentRow<Arch, Latent, 32, true>,
    LatentRowsRow<Arch, Latent, float>,
    LatentRowsRow<Arch, Latent, std::uint16_t>,
    AbsorbRow<Arch, Latent>,
    CombineExpandRow<Arch, Latent>>;

// Queries come from a projection, what attention gave is bf16.
template <class Arch>
using RowsOfHeads = moe::RowList<
    TurnQueriesRow<Arch, float>,
    TurnQueriesRow<Arch, std::uint16_t>,
    HeadLinearRow<Arch, true, float, 16>,
    HeadLinearRow<Arch, true, float, 32>,
    HeadLinearRow<Arch, true, std::uint16_t, 16>,
    HeadLinearRow<Arch, true, std::uint16_t, 32>,
    HeadLinearRow<Arch, false, std::uint16_t, 16>,
    HeadLinearRow<Arch, false, std::uint16_t, 32>>;
// clang-format on

template <class Arch>
using PromptWgmmaRows = moe::RowList<PromptLatentWgmmaRow<Arch, 512>, PromptLatentWgmmaRow<Arch, 256>,
                                     PromptLatentWgmmaRow<Arch, 64>>;

// 512: DeepSeek-V3, Kimi-K2; 256: Mistral-Small-4; 64: small golden models.
template <class Chip, class Arch = typename Chip::Shared>
using Rows =
    moe::Join<RowsOfLatent<Arch, 512>, RowsOfLatent<Arch, 256>, RowsOfLatent<Arch, 64>, RowsOfHeads<Arch>,
              moe::RowList<CombineLatentRow<Arch>>, moe::If<Chip::has_wgmma, PromptWgmmaRows<plan::Sm90>>>;

}  // namespace fourfold::mla
