// The rows of the attention kernels: head dimension, kind of cached number, and what each kernel adds.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/macros.h"
#include "kernels/attention/attend_row.h"
#include "kernels/attention/combine.h"
#include "kernels/attention/prepare.h"
#include "kernels/attention/prompt_row.h"
#include "kernels/attention/row_squares.h"
#include "kernels/launch/row.h"
#include "kernels/moe/row_list.h"

namespace fourfold::attention {

// Element: of the projection's rows, float (generated rows) or std::uint16_t (bf16, prompt rows).
// Biased: with code for biases and norms over all heads (attention_params.h).
template <class ArchT, class KvT, int HeadDim, class ElementT, bool Biased = false>
struct PrepareRow {
  using Arch = ArchT;
  using Layout = PageLayout<KvT, HeadDim>;
  using Element = ElementT;
  using Params = PrepareParams;
  using Storage = kernels::NoStorage;
  static constexpr int head_dim = HeadDim;
  static constexpr int threads = 32 * kPrepareWarps;
  static constexpr int blocks_per_sm = 4;
  static constexpr bool from_f32 = std::is_same_v<Element, float>;
  static constexpr bool is_biased = Biased;
  static std::string name() { return prepare_row(HeadDim, KvT::name, from_f32 ? "f32" : "bf16", Biased); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PrepareRow>("prepare", Biased ? "biased" : "both", KvT::name);
    facts.head_dim = HeadDim;
    facts.from_f32 = from_f32;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    prepare<PrepareRow>(cta, params);
  }
};

template <class ArchT, class ElementT>
struct SquaresRow {
  using Arch = ArchT;
  using Element = ElementT;
  using Params = SquaresParams;
  using Storage = SquaresStorage;
  static constexpr int threads = 32 * kSquaresWarps;
  static constexpr int blocks_per_sm = 4;
  static constexpr bool from_f32 = std::is_same_v<Element, float>;
  static std::string name() { return squares_row(from_f32 ? "f32" : "bf16"); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<SquaresRow>("row_squares", "both");
    facts.from_f32 = from_f32;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    row_squares<SquaresRow>(cta, params);
  }
};

// Windowed: with code for a window and sinks (attention_params.h).
template <class ArchT, int HeadDim, bool Windowed = false>
struct CombineRow {
  using Arch = ArchT;
  using Params = CombineParams;
  using Storage = CombineStorage<HeadDim>;
  static constexpr int head_dim = HeadDim;
  static constexpr bool is_windowed = Windowed;
  static constexpr int threads = 32 * kCombineWarps;
  static constexpr int blocks_per_sm = 2;
  static std::string name() { return combine_row(HeadDim, Windowed); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<CombineRow>("combine splits", "decode", "f32");
    facts.head_dim = HeadDim;
    facts.is_windowed = Windowed;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    combine<CombineRow>(cta, params);
  }
};

// clang-format off
template <class Arch, class Kv, int HeadDim>
using RowsOf = moe::RowList<
    PrepareRow<Arch, Kv, HeadDim, float>,
    PrepareRow<Arch, Kv, HeadDim, std::uint16_t>,
    PrepareRow<Arch, Kv, HeadDim, float, true>,
    PrepareRow<Arch, Kv, HeadDim, std::uint16_t, true>,
    AttendRow<Arch, Kv, HeadDim, 16>,
    AttendRow<Arch, Kv, HeadDim, 32>,
    AttendRow<Arch, Kv, HeadDim, 64>,
    PromptRow<Arch, Kv, HeadDim>>;
// clang-format on

template <class Arch, int HeadDim>
using RowsOfHead = moe::Join<RowsOf<Arch, Bf16Kv, HeadDim>, RowsOf<Arch, E4m3Kv, HeadDim>,
                             moe::RowList<CombineRow<Arch, HeadDim>>>;

// Prompts over bf16 pages on Hopper: the bits of PromptRow, faster.
using HopperRows = moe::RowList<PromptWgmmaRow<plan::Sm90, 256>, PromptWgmmaRow<plan::Sm90, 128>,
                                PromptWgmmaRow<plan::Sm90, 64>, PromptWgmmaRow<plan::Sm90, 64, true>>;

// Windows and sinks: gpt-oss has heads of 64.
template <class Arch, class Kv>
using WindowedRowsOf = moe::RowList<AttendRow<Arch, Kv, 64, 16, true>, AttendRow<Arch, Kv, 64, 32, true>,
                                    AttendRow<Arch, Kv, 64, 64, true>, PromptRow<Arch, Kv, 64, true>>;
template <class Arch>
using WindowedRows = moe::Join<WindowedRowsOf<Arch, Bf16Kv>, WindowedRowsOf<Arch, E4m3Kv>,
                               moe::RowList<CombineRow<Arch, 64, true>>>;

// Heads of 256 are the models served; 128 and 64 are those of their relatives and of small golden models.
template <class Chip, class Arch = typename Chip::Shared>
using Rows = moe::Join<RowsOfHead<Arch, 256>, RowsOfHead<Arch, 128>, RowsOfHead<Arch, 64>, WindowedRows<Arch>,
                       moe::RowList<SquaresRow<Arch, float>, SquaresRow<Arch, std::uint16_t>>,
                       moe::If<Chip::has_wgmma, HopperRows>>;

}  // namespace fourfold::attention
