// The rows of the few-token kernels. Names read 32x4xK: a warp's strip, the tokens, the segment of K a warp
// sums; any K that is a multiple of 64 runs on them.
#pragma once

#include <type_traits>

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
// Others  warps beside them: GEMM2's has the shared expert; and one feeds the rings, if Fed, else each warp
//         feeds its own.
// Blocks  blocks per SM the registers are capped for: blocks of GEMM1 and of GEMM2 should fit an SM together,
//         so that GEMM2 starts, routes and fetches its weights before GEMM1 ends.
// AnyRule with the code for every rule (moe_route/route_rule.h).
// Glu     what becomes of gate and up (moe/gemm_params.h).
template <class ArchT, class PathT, class FormatT, int RowsN, int WarpsN, int OthersN, bool Fed, int BlocksN,
          bool AnyRule, class GluT>
struct FewRow {
  using Arch = ArchT;
  using Path = PathT;
  using Format = FormatT;
  using Glu = GluT;
  static constexpr int rows = RowsN;
  static constexpr int warps = WarpsN;
  static constexpr bool fed = Fed;
  static constexpr int routing_warps = WarpsN + Fed;
  static constexpr int threads = 32 * (WarpsN + OthersN);
  static constexpr int blocks_per_sm = BlocksN;
  static constexpr bool any_rule = AnyRule;
  static_assert(warps > kFewTokens, "a warp routes a token, another fetches them");
};

inline constexpr int kWarps = 8;

// What the fixed parts leave of the shared memory is divided when the tokens are known.
inline constexpr int kGateUpFixedBytes =
    static_cast<int>(sizeof(FewRoute) + sizeof(GateUpSums<kWarps>)) + device::kBarrierBytes;
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule, class Glu>
struct GateUpFew : FewRow<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  static constexpr int area_bytes = (Arch::smem_bytes_per_block - kGateUpFixedBytes) / 128 * 128;
  static constexpr int depth = ring_depth<Format>(area_bytes - kGateUpTokenBytes, Warps);  // at least
  static_assert(depth >= 3, "with the most tokens there is still something to fetch while a warp computes");
};
template <int Rows>
inline constexpr int kDownFixedBytes = static_cast<int>(sizeof(FewRoute) + sizeof(device::Mbarrier) +
                                                        sizeof(FedBarriers<kWarps>) + sizeof(PairFactors) +
                                                        sizeof(SharedSums<Rows>)) +
                                       16;  // of alignment
static_assert(sizeof(FedBarriers<kWarps>) == sizeof(OwnBarriers<kWarps>));
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule, class Glu>
struct DownFew : FewRow<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  using Barriers = std::conditional_t<Fed, FedBarriers<Warps>, OwnBarriers<Warps>>;
  static constexpr int area_bytes = (Arch::smem_bytes_per_block - kDownFixedBytes<Rows>) / 128 * 128;
  static constexpr int depth = Fed ? kFedStages : ring_depth<Format>(area_bytes - kDownBytes, Warps);
  static_assert(area_bytes - kDownBytes >= 7 * kFedRingBytes<Format>);
};
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule, class Glu>
struct StreamFew : FewRow<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  static constexpr int depth = kFedStages;
};

template <class Row>
plan::RowFacts gate_up_facts();
template <class Row>
plan::RowFacts down_facts();
template <class Row>
plan::RowFacts stream_facts();

template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule = false, class Glu = moe::SwiGlu>
struct GateUpRow : GateUpFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  using Few = GateUpFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu>;
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
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule = false, class Glu = moe::SwiGlu>
struct StreamRow : StreamFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  using Few = StreamFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu>;
  using Params = FewCall;
  using Storage = StreamStorage<Few>;
  static constexpr kernels::RowKind kind = kernels::RowKind::few_gate_up;
  static constexpr int blocks_per_sm = 1, register_blocks = Blocks;
  static plan::RowFacts facts() { return stream_facts<Few>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const FewCall& call) {
    few_stream<Few>(cta, call.few, call.gemm);
  }
};
template <class Arch, class Path, class Format, int Rows, int Warps, int Others, bool Fed, int Blocks,
          bool AnyRule = false, class Glu = moe::SwiGlu>
struct DownRow : DownFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu> {
  using Few = DownFew<Arch, Path, Format, Rows, Warps, Others, Fed, Blocks, AnyRule, Glu>;
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

// clang-format off
template <class Arch, bool AnyRule, class Path, class Format>
using PlainRows = moe::RowList<
    //                            rows warps others  fed  blocks
    GateUpRow<Arch, Path, Format,   32, kWarps,  0, false,     2, AnyRule>,
    StreamRow<Arch, Path, Format,   32, kWarps,  1,  true,     2, AnyRule>,
    DownRow<Arch, Path, Format,     16, kWarps,  1, false,     2, AnyRule>,
    DownRow<Arch, Path, Format,     32, kWarps,  2,  true,     2, AnyRule>>;

template <class Arch, bool AnyRule, class Path, class Format, class Glu = moe::ClampedSwiGlu>
using ClampedRows = moe::RowList<
    StreamRow<Arch, Path, Format,   32, kWarps,  1,  true,     2, AnyRule, Glu>,
    DownRow<Arch, Path, Format,     16, kWarps,  1, false,     2, AnyRule, Glu>,
    DownRow<Arch, Path, Format,     32, kWarps,  2,  true,     2, AnyRule, Glu>>;
// clang-format on

template <class Arch, bool AnyRule>
using RowsWith = moe::Join<PlainRows<Arch, AnyRule, moe::W4a16Mma, record::Nvfp4>,
                           PlainRows<Arch, AnyRule, moe::W4a16Mma, record::Mxfp4>,
                           PlainRows<Arch, AnyRule, moe::W4a16Fp4Order, record::Nvfp4>,
                           ClampedRows<Arch, AnyRule, moe::W4a16Mma, record::Mxfp4>>;
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
  facts.producer_warps = Row::fed;
  facts.stages = Row::depth;
  facts.clamps = Row::Glu::adds_bias;
  facts.registers = plan::registers_at(Row::Arch::facts, Row::threads, Row::blocks_per_sm);
  return facts;
}
// area: what holds weights and tokens.
template <class Row, class Storage>
plan::RowFacts ringed_facts(const char* kernel, int area) {
  constexpr int limit_bytes = plan::smem_budget_for(Row::Arch::facts, 1);
  static_assert(plan::FitsSharedMemory<sizeof(Storage), limit_bytes>::value);
  plan::RowFacts facts = few_facts<Row>(kernel);
  const int route = static_cast<int>(sizeof(FewRoute)), total = static_cast<int>(sizeof(Storage));
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
  using Storage = GateUpStorage<Row>;
  return ringed_facts<Row, Storage>("moe_few_gate_up", sizeof(Storage::area));
}
template <class Row>
plan::RowFacts stream_facts() {
  using Storage = StreamStorage<Row>;
  return ringed_facts<Row, Storage>(kStreamKernel, sizeof(Storage::rings) + sizeof(Storage::tokens));
}
template <class Row>
plan::RowFacts down_facts() {
  using Storage = DownStorage<Row>;
  return ringed_facts<Row, Storage>("moe_few_down", sizeof(Storage::area));
}

}  // namespace fourfold::moe_few
