// The rows of the streaming kernel, per chip. Names read 32xNxK: a warp's strip, the tokens of a pass, the
// columns of its unrolled loop. K is chosen by the matrix: 512 where it divides, else 256, else 64; with
// biases 512 where the rest is long enough, too (moe/loop_columns.h).
#pragma once

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/row_list.h"
#include "kernels/moe_stream/moe_stream.h"
#include "kernels/moe_stream/stream_row.h"
#include "plan/row_facts.h"

namespace fourfold::moe_stream {

template <class Row>
plan::RowFacts row_facts();

template <class Arch, class Path, class Format, int Tokens, int UnitRecords, int Warps, int Depth, int Blocks,
          class Glu = moe::SwiGlu>
struct Stream : StreamRow<Arch, Path, Format, Tokens, UnitRecords, Warps, Depth, Blocks, Glu> {
  using Shape = StreamRow<Arch, Path, Format, Tokens, UnitRecords, Warps, Depth, Blocks, Glu>;
  using Params = moe::GemmParams;
  static constexpr kernels::RowKind kind = kernels::RowKind::gemm;
  static constexpr bool wants_cache = true;  // 6 % at 64 tokens
  static plan::RowFacts facts() { return row_facts<Shape>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    stream_gemm<Shape>(cta, params);
  }
};

// Four warps, two records in flight, four blocks an SM measured best for eight tokens (docs/decisions/0001);
// wider rows pay for their sums with fewer blocks. With 64 tokens and four records the decoder of the FP4
// order would spill.
// clang-format off
template <class Arch, class Path, class Format>
using HalfRowsWithout64x256 = moe::RowList<
    //                                     N  unit warps depth blocks
    Stream<Arch, Path, Format,             8,  8,   4,    2,    4>,
    Stream<Arch, Path, Format,             8,  4,   4,    2,    4>,
    Stream<Arch, Path, Format,             8,  1,   4,    1,    4>,
    Stream<Arch, Path, Format,            16,  8,   4,    2,    3>,
    Stream<Arch, Path, Format,            16,  4,   4,    2,    3>,
    Stream<Arch, Path, Format,            16,  1,   4,    1,    3>,
    Stream<Arch, Path, Format,            32,  4,   4,    2,    2>,
    Stream<Arch, Path, Format,            32,  1,   4,    1,    2>,
    Stream<Arch, Path, Format,            64,  1,   4,    1,    2>>;
template <class Arch, class Path, class Format>
using HalfRows = moe::Join<HalfRowsWithout64x256<Arch, Path, Format>, moe::RowList<
    Stream<Arch, Path, Format,            64,  4,   4,    1,    2>>>;

// A record of bf16 is eight 16-byte loads a lane and one of fp8 four: one or two of them in flight are more
// bytes than FP4's two.
template <class Arch>
using Bf16Rows = moe::RowList<
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,    8,  8,   4,    1,    4>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,    8,  4,   4,    1,    4>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,    8,  1,   4,    1,    4>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   16,  8,   4,    1,    3>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   16,  4,   4,    1,    2>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   16,  1,   4,    1,    3>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   32,  4,   4,    1,    2>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   32,  1,   4,    1,    2>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   64,  4,   4,    1,    2>,
    Stream<Arch, moe::W4a16Mma, record::Bf16Format,   64,  1,   4,    1,    2>>;
template <class Arch>
using Fp8Rows = HalfRows<Arch, moe::W4a16Mma, record::Fp8Format>;

template <class Arch>
using Fp4Rows = moe::RowList<
    Stream<Arch, moe::W4a4, record::Nvfp4,  8,  4,   4,    2,    4>,
    Stream<Arch, moe::W4a4, record::Nvfp4,  8,  1,   4,    1,    4>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 16,  4,   4,    2,    3>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 16,  1,   4,    1,    3>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 32,  4,   4,    2,    2>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 32,  1,   4,    1,    2>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 64,  4,   4,    2,    2>,
    Stream<Arch, moe::W4a4, record::Nvfp4, 64,  1,   4,    1,    2>>;

// gpt-oss: K is 2,880 in both matrices, 45 records: five rounds of eight and one of five.
template <class Arch, class Format, class Path = moe::W4a16Mma, class Glu = moe::ClampedSwiGlu>
using ClampedRows = moe::RowList<
    Stream<Arch, Path, Format,             8,  1,   4,    1,    4, Glu>,
    Stream<Arch, Path, Format,            16,  1,   4,    1,    3, Glu>,
    Stream<Arch, Path, Format,            32,  1,   4,    1,    2, Glu>,
    Stream<Arch, Path, Format,            64,  1,   4,    1,    2, Glu>>;
template <class Arch, class Format, class Path = moe::W4a16Mma, class Glu = moe::ClampedSwiGlu>
using RaggedRows = moe::RowList<
    Stream<Arch, Path, Format,             8,  8,   4,    4,    4, Glu>,
    Stream<Arch, Path, Format,            16,  8,   4,    4,    3, Glu>,
    Stream<Arch, Path, Format,            32,  8,   4,    2,    2, Glu>>;
// clang-format on

template <class Chip, class Arch = typename Chip::Shared>
using Rows =
    moe::Join<HalfRows<Arch, moe::W4a16Mma, record::Nvfp4>, HalfRows<Arch, moe::W4a16Mma, record::Mxfp4>,
              HalfRowsWithout64x256<Arch, moe::W4a16Fp4Order, record::Nvfp4>, Fp4Rows<Arch>, Bf16Rows<Arch>,
              Fp8Rows<Arch>, ClampedRows<Arch, record::Mxfp4>, ClampedRows<Arch, record::Bf16Format>,
              RaggedRows<Arch, record::Mxfp4>>;

template <class Row>
std::string row_name() {
  return moe::row_name("moe_stream", record::kRows, Row::tokens, Row::unit_records * record::kColumns,
                       moe::path_name<typename Row::Path, typename Row::Format>(), Row::Format::name) +
         (Row::Glu::adds_bias ? moe::kClampedName : "");
}

template <class Row>
plan::RowFacts row_facts() {
  constexpr int limit_bytes = plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm);
  constexpr int registers = plan::registers_at(Row::Arch::facts, Row::threads, Row::blocks_per_sm);
  plan::RowFacts facts("moe_stream", row_name<Row>(), Row::Arch::name,
                       moe::path_name<typename Row::Path, typename Row::Format>(), Row::Format::name,
                       "decode");
  facts.m = record::kRows;
  facts.n = Row::tokens;
  facts.k = Row::unit_records * record::kColumns;
  facts.threads = Row::threads;
  facts.math_warps = Row::warps;
  facts.stages = Row::depth;
  facts.parts = {{"partial sums", static_cast<int>(sizeof(typename Row::Storage))}};
  facts.total_bytes = static_cast<int>(sizeof(typename Row::Storage));
  facts.limit_bytes = limit_bytes;
  facts.registers = registers;
  facts.blocks_per_sm = Row::blocks_per_sm;
  facts.clamps = Row::Glu::adds_bias;
  return facts;
}

}  // namespace fourfold::moe_stream
