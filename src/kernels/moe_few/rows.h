// The rows of the few-token kernels. Names read 32x4xK: a warp's strip, the tokens, the segment of K a warp
// sums; any K that is a multiple of 64 runs on them, on the streamed ones what moe/loop_columns.h says.
#pragma once

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe/row_list.h"
#include "kernels/moe_few/few_down.h"
#include "kernels/moe_few/few_gate_up.h"
#include "kernels/moe_few/few_stream.h"
#include "plan/arch.h"
#include "plan/budget.h"
#include "plan/row_facts.h"

namespace fourfold::moe_few {

// Rows    weight rows of a warp: a strip or, in GEMM2, half of one (its blocks fetch the whole).
// Warps   that multiply experts.
// Others  warps beside them: GEMM2's has the shared expert.
// Blocks  blocks per SM the registers are capped for: blocks of GEMM1 and of GEMM2 should fit an SM together,
//         so that GEMM2 starts, routes and fetches its weights before GEMM1 ends.
//
// AnyRule  with the code for every rule (moe_route/route_rule.h).
//
// The shared memory that the fixed parts leave is the rings' and the tokens'.
template <class ArchT, class PathT, class FormatT, int RowsN, int WarpsN, int OthersN, int BlocksN,
          bool AnyRule, int FixedBytes, int TokenBytes, class GluT = moe::SwiGlu>
struct FewRow {
  using Arch = ArchT;
  using Path = PathT;
  using Format = FormatT;
  using Glu = GluT;
  static constexpr int rows = RowsN;
  static constexpr int warps = WarpsN;
  static constexpr int threads = 32 * (WarpsN + OthersN);
  static constexpr int blocks_per_sm = BlocksN;
  static constexpr bool any_rule = AnyRule;
  static constexpr int area_bytes = (ArchT::smem_bytes_per_block - FixedBytes) / 128 * 128;
  using Area = RingArea<FormatT, WarpsN, area_bytes>;
  static constexpr int depth = Area::depth_with(TokenBytes);  // at least
  static_assert(warps >= kFewTokens, "a warp routes a token");
  static_assert(depth >= 3, "with the most tokens there is still something to fetch while a warp computes");
};

inline constexpr int kWarps = 8;
inline constexpr int kGateUpFixedBytes =
    static_cast<int>(sizeof(FewRoute) + sizeof(GateUpSums<kWarps>)) + device::kBarrierBytes;
template <int Rows, class Glu = moe::SwiGlu>
inline constexpr int kDownFixedBytes =
    static_cast<int>(sizeof(FewRoute) + sizeof(PairFactors) + sizeof(UnitSums<Rows>) +
                     sizeof(SharedSums<Rows>)) +
    (Glu::adds_bias ? static_cast<int>(sizeof(PairBiases<Rows>)) : 0) + device::kBarrierBytes;

template <class Row>
plan::RowFacts gate_up_facts();
template <class Row>
plan::RowFacts down_facts();
template <class Row>
plan::RowFacts stream_facts();

template <class Arch, class Path, class Format, int Rows, int Warps, int Others, int Blocks,
          bool AnyRule = false>
struct GateUpRow
    : FewRow<Arch, Path, Format, Rows, Warps, Others, Blocks, AnyRule, kGateUpFixedBytes, kGateUpTokenBytes> {
  using Few =
      FewRow<Arch, Path, Format, Rows, Warps, Others, Blocks, AnyRule, kGateUpFixedBytes, kGateUpTokenBytes>;
  using Params = FewCall;
  using Storage = GateUpStorage<Few>;
  static constexpr kernels::RowKind kind = kernels::RowKind::few_gate_up;
  static constexpr int blocks_per_sm = 1, register_blocks = Blocks;
  static plan::RowFacts facts() { return gate_up_facts<Few>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const FewCall& call) {
    few_gate_up<Few>(cta, call.few, call.gemm);
  }
};
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, int Blocks,
          bool AnyRule = false, class Glu = moe::SwiGlu>
struct DownRow : FewRow<Arch, Path, Format, Rows, Warps, Others, Blocks, AnyRule, kDownFixedBytes<Rows, Glu>,
                        kDownTokenBytes, Glu> {
  using Few = FewRow<Arch, Path, Format, Rows, Warps, Others, Blocks, AnyRule, kDownFixedBytes<Rows, Glu>,
                     kDownTokenBytes, Glu>;
  using Params = FewCall;
  using Storage = DownStorage<Few>;
  static constexpr kernels::RowKind kind = kernels::RowKind::few_down;
  static constexpr int blocks_per_sm = 1, register_blocks = Blocks;
  static plan::RowFacts facts() { return down_facts<Few>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const FewCall& call) {
    few_down<Few>(cta, call.few, call.gemm);
  }
};

// GEMM1 as moe_stream's rows have it, with Depth weight records of a warp in flight: a warp has three
// segments or so, and what counts is how long they take one after the other. So many registers that three
// blocks fit.
template <class Arch, class Path, class Format, int Depth, int Blocks, bool AnyRule, class Glu>
struct FewStreamRow : moe_stream::StreamRow<Arch, Path, Format, moe::kSlotGroup, kSegmentRecords, kFewTokens,
                                            Depth, Blocks, Glu> {
  static constexpr int rows = record::kRows;
  static constexpr bool any_rule = AnyRule;
};
template <class Arch, class Path, class Format, int Depth, int Blocks, bool AnyRule, class Glu>
struct StreamGateUpRow : FewStreamRow<Arch, Path, Format, Depth, Blocks, AnyRule, Glu> {
  using Stream = FewStreamRow<Arch, Path, Format, Depth, Blocks, AnyRule, Glu>;
  using Params = FewCall;
  using Storage = StreamStorage<Stream>;
  static constexpr kernels::RowKind kind = kernels::RowKind::few_gate_up;
  static constexpr bool wants_cache = true;  // as moe_stream
  static plan::RowFacts facts() { return stream_facts<Stream>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const FewCall& call) {
    few_stream<Stream>(cta, call.few, call.gemm);
  }
};

// clang-format off
template <class Arch, bool AnyRule, class Path, class Format>
using GateUpRows = moe::RowList<
    //                            rows warps others blocks
    GateUpRow<Arch, Path, Format,   32, kWarps,  0,     2, AnyRule>>;

template <class Arch, bool AnyRule, class Path, class Format>
using DownRows = moe::RowList<
    DownRow<Arch, Path, Format,     16, kWarps,  1,     2, AnyRule>,
    DownRow<Arch, Path, Format,     32, kWarps,  1,     2, AnyRule>>;

template <class Arch, bool AnyRule, class Glu = moe::ClampedSwiGlu>
using ClampedDownRows = moe::RowList<
    DownRow<Arch, moe::W4a16Mma, record::Mxfp4, 16, kWarps,  1, 2, AnyRule, Glu>,
    DownRow<Arch, moe::W4a16Mma, record::Mxfp4, 32, kWarps,  1, 2, AnyRule, Glu>>;

template <class Arch, bool AnyRule>
using StreamGateUpRows = moe::RowList<
    //                                                    depth blocks
    StreamGateUpRow<Arch, moe::W4a16Mma, record::Mxfp4,     4,    3, AnyRule, moe::ClampedSwiGlu>>;
// clang-format on

template <class Arch, bool AnyRule>
using RowsWith = moe::Join<GateUpRows<Arch, AnyRule, moe::W4a16Mma, record::Nvfp4>,
                           GateUpRows<Arch, AnyRule, moe::W4a16Mma, record::Mxfp4>,
                           GateUpRows<Arch, AnyRule, moe::W4a16Fp4Order, record::Nvfp4>,
                           DownRows<Arch, AnyRule, moe::W4a16Mma, record::Nvfp4>,
                           DownRows<Arch, AnyRule, moe::W4a16Mma, record::Mxfp4>,
                           DownRows<Arch, AnyRule, moe::W4a16Fp4Order, record::Nvfp4>,
                           ClampedDownRows<Arch, AnyRule>, StreamGateUpRows<Arch, AnyRule>>;
template <class Chip, class Arch = typename Chip::Shared>
using Rows = moe::Join<RowsWith<Arch, false>, RowsWith<Arch, true>>;

template <class Row>
std::string few_name(const char* kernel) {
  std::string name =
      moe::row_name(kernel, Row::rows, kFewTokens, moe::kSegmentColumns, Row::Path::name, Row::Format::name);
  if (Row::Glu::adds_bias) name += moe::kClampedName;
  return Row::any_rule ? moe_route::any_rule_name(name) : name;
}

// What all of the path's rows have, whatever lies in their shared memory.
template <class Row>
plan::RowFacts few_facts(const char* kernel) {
  plan::RowFacts facts(kernel, few_name<Row>(kernel), Row::Arch::name, Row::Path::name, Row::Format::name,
                       "decode");
  facts.m = Row::rows;
  facts.n = kFewTokens;
  facts.k = moe::kSegmentColumns;
  facts.threads = Row::threads;
  facts.math_warps = Row::warps;
  facts.stages = Row::depth;
  facts.clamps = Row::Glu::adds_bias;
  facts.registers = plan::registers_at(Row::Arch::facts, Row::threads, Row::blocks_per_sm);
  return facts;
}
template <class Row, class Storage>
plan::RowFacts ringed_facts(const char* kernel) {
  constexpr int limit_bytes = plan::smem_budget_for(Row::Arch::facts, 1);
  static_assert(plan::FitsSharedMemory<sizeof(Storage), limit_bytes>::value);
  plan::RowFacts facts = few_facts<Row>(kernel);
  const int route = static_cast<int>(sizeof(FewRoute)), area = static_cast<int>(sizeof(Storage::area)),
            total = static_cast<int>(sizeof(Storage));
  facts.parts = {{"routing", route}, {"weights and tokens", area}, {"sums", total - route - area}};
  facts.total_bytes = total;
  facts.limit_bytes = limit_bytes;
  facts.blocks_per_sm =
      plan::blocks_per_sm(Row::Arch::facts, facts.threads, facts.registers, facts.total_bytes);
  return facts;
}
template <class Row>
plan::RowFacts gate_up_facts() {
  static_assert(Row::warps >= kMaxSegments, "a group has a warp for every segment");
  return ringed_facts<Row, GateUpStorage<Row>>("moe_few_gate_up");
}
template <class Row>
plan::RowFacts stream_facts() {
  plan::RowFacts facts = few_facts<Row>(kStreamKernel);
  const int route = static_cast<int>(sizeof(FewRoute)), total = static_cast<int>(sizeof(StreamStorage<Row>));
  facts.parts = {{"routing", route}, {"partial sums", total - route}};
  facts.total_bytes = total;
  facts.limit_bytes = plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm);
  facts.blocks_per_sm = Row::blocks_per_sm;
  return facts;
}
template <class Row>
plan::RowFacts down_facts() {
  return ringed_facts<Row, DownStorage<Row>>("moe_few_down");
}

}  // namespace fourfold::moe_few
