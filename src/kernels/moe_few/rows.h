// The rows of the few-token kernels. Names read 32x4xK: a warp's strip, the tokens, the segment of K a warp
// sums; any K that is a multiple of 64 runs on them.
#pragma once

#include "kernels/moe/row_list.h"
#include "kernels/moe_few/few_down.h"
#include "kernels/moe_few/few_gate_up.h"
#include "plan/arch.h"
#include "plan/budget.h"
#include "plan/row_facts.h"

namespace fourfold::moe_few {

// Rows    weight rows of a warp: a strip or, in GEMM2, half of one (its blocks fetch the whole).
// Warps   of a block.
// Depth   copies a warp's ring holds.
// Blocks  blocks per SM the registers are capped for: blocks of GEMM1 and of GEMM2 should fit an SM together,
//         so that GEMM2 starts, routes and fetches its weights before GEMM1 ends.
template <class ArchT, class FormatT, int RowsN, int WarpsN, int DepthN, int BlocksN>
struct FewRow {
  using Arch = ArchT;
  using Path = moe::W4a16Mma;
  using Format = FormatT;
  using Ring = RecordRing<FormatT, DepthN>;
  static constexpr int rows = RowsN;
  static constexpr int warps = WarpsN;
  static constexpr int threads = 32 * WarpsN;
  static constexpr int depth = DepthN;
  static constexpr int blocks_per_sm = BlocksN;
  static_assert(warps >= kFewTokens, "a warp routes a token");
};

// clang-format off
template <class Arch, class Format>
using GateUpRows = moe::RowList<
    //                   rows warps depth blocks
    FewRow<Arch, Format,   32,    8,    3,    2>>;

template <class Arch, class Format>
using DownRows = moe::RowList<
    FewRow<Arch, Format,   16,    8,    3,    2>,
    FewRow<Arch, Format,   32,    8,    3,    2>>;
// clang-format on

template <class Row>
std::string gate_up_name() {
  return moe::row_name("moe_few_gate_up", Row::rows, kFewTokens, moe::kSegmentColumns, Row::Path::name,
                       Row::Format::name);
}
template <class Row>
std::string down_name() {
  return moe::row_name("moe_few_down", Row::rows, kFewTokens, moe::kSegmentColumns, Row::Path::name,
                       Row::Format::name);
}

template <class Row, class Storage>
plan::RowFacts few_facts(std::string kernel, std::string name) {
  static_assert(plan::FitsSharedMemory<sizeof(Storage), plan::smem_budget_for(Row::Arch::facts, 1)>::value);
  plan::RowFacts facts{};
  facts.kernel = std::move(kernel);
  facts.row = std::move(name);
  facts.arch = Row::Arch::name;
  facts.path = Row::Path::name;
  facts.format = Row::Format::name;
  facts.role = "decode";
  facts.m = Row::rows;
  facts.n = kFewTokens;
  facts.k = moe::kSegmentColumns;
  facts.threads = Row::threads;
  facts.math_warps = Row::warps;
  facts.producer_warps = 0;
  facts.stages = Row::depth;
  const int route = static_cast<int>(sizeof(FewRoute)), ring = static_cast<int>(sizeof(Storage::ring)),
            tokens = static_cast<int>(sizeof(Storage::tokens)), total = static_cast<int>(sizeof(Storage));
  facts.parts = {
      {"routing", route}, {"weights", ring}, {"tokens", tokens}, {"sums", total - route - ring - tokens}};
  facts.total_bytes = total;
  facts.limit_bytes = plan::smem_budget_for(Row::Arch::facts, 1);
  facts.registers = plan::registers_at(Row::Arch::facts, Row::threads, Row::blocks_per_sm);
  facts.blocks_per_sm =
      plan::blocks_per_sm(Row::Arch::facts, facts.threads, facts.registers, facts.total_bytes);
  facts.epilogue_aliases_stages = false;
  return facts;
}
template <class Row>
plan::RowFacts gate_up_facts() {
  static_assert(Row::warps >= kMaxSegments, "a group has a warp for every segment");
  return few_facts<Row, GateUpStorage<Row>>("moe_few_gate_up", gate_up_name<Row>());
}
template <class Row>
plan::RowFacts down_facts() {
  return few_facts<Row, DownStorage<Row>>("moe_few_down", down_name<Row>());
}

}  // namespace fourfold::moe_few
