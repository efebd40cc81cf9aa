// The rows of the tiled kernel, per chip and path. MxNxK = weight rows x tokens x K in elements.
#pragma once

#include <type_traits>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/row_list.h"
#include "kernels/moe_gemm/moe_gemm.h"
#include "kernels/moe_gemm/tile_row.h"
#include "plan/row_facts.h"

namespace fourfold::moe_gemm {

template <class Row>
plan::RowFacts row_facts();

// A tile and its warps as a row.
template <class TileT>
struct TileKernel : TileT {
  using Params = moe::GemmParams;
  static constexpr kernels::RowKind kind = kernels::RowKind::gemm;
  static plan::RowFacts facts() { return row_facts<TileT>(); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    tile_gemm<TileT>(cta, params);
  }
};

// Eight math warps and a warpgroup of producers, which hands its registers over: the wide tiles spill
// without.
template <class Arch, class Path, class Format, int M, int N, int K>
using Wide = TileKernel<TileRow<TileShape<Arch, Path, Format, M, N, K, 8, 4>>>;
template <class Arch, class Format, int M, int N, int K>
using WideClamped =
    TileKernel<TileRow<TileShape<Arch, moe::W4a16Mma, Format, M, N, K, 8, 4, 1, true, moe::ClampedSwiGlu>>>;
// Four math warps and one producer warp: token records need no gathering, and two blocks share an SM.
template <class Arch, class Path, class Format, int M, int N, int K, int Blocks>
using Slim = TileKernel<TileRow<TileShape<Arch, Path, Format, M, N, K, 4, 1, Blocks>>>;

// A math warp per m16 tile, which hide each other's decoding, and a warpgroup of producers. The wide ones
// serve and have every width of sixteen, up to 64 tokens of eight.
template <class Arch, class Path, class Format, int M, int N, int K>
using Grouped = TileKernel<TileRow<TileShape<Arch, Path, Format, M, N, K, M / 16, 4, 1, M == 256>>>;
template <class Format, int N, int K>
using GroupedClamped = TileKernel<
    TileRow<TileShape<plan::Sm90, moe::W4a16Wgmma, Format, 256, N, K, 16, 4, 1, true, moe::ClampedSwiGlu>>>;

// The field's K = 64 tiles and their K = 128 and 256 relatives.
template <template <class, class, class, int, int, int> class Kind, class Arch, class Path, class Format>
using NamedTiles = moe::RowList<Kind<Arch, Path, Format, 128, 128, 64>,   //
                                Kind<Arch, Path, Format, 128, 256, 64>,   //
                                Kind<Arch, Path, Format, 256, 128, 64>,   //
                                Kind<Arch, Path, Format, 128, 64, 128>,   //
                                Kind<Arch, Path, Format, 128, 128, 128>,  //
                                Kind<Arch, Path, Format, 256, 128, 128>,  //
                                Kind<Arch, Path, Format, 128, 128, 256>>;

// Few tokens of a prompt: 8 to 32 (64 is a named tile).
template <template <class, class, class, int, int, int> class Kind, class Arch, class Path, class Format>
using NarrowTiles = moe::RowList<Kind<Arch, Path, Format, 128, 8, 256>,   //
                                 Kind<Arch, Path, Format, 128, 16, 256>,  //
                                 Kind<Arch, Path, Format, 128, 32, 128>>;

// FP4 tokens: two blocks of at most 50,176 bytes on an SM.
template <class Arch>
using NarrowFp4Tiles = moe::RowList<Slim<Arch, moe::W4a4, record::Nvfp4, 128, 8, 256, 2>,   //
                                    Slim<Arch, moe::W4a4, record::Nvfp4, 128, 16, 256, 2>,  //
                                    Slim<Arch, moe::W4a4, record::Nvfp4, 128, 32, 128, 2>>;

template <class Arch, class Format>
using MmaTiles =
    moe::Join<NamedTiles<Wide, Arch, moe::W4a16Mma, Format>, NarrowTiles<Wide, Arch, moe::W4a16Mma, Format>>;

// Hopper's own: short tiles for the middle of the range, where weights come from memory ...
template <class Format>
using ShortTiles = moe::RowList<Grouped<plan::Sm90, moe::W4a16Wgmma, Format, 256, 64, 128>>;
// ... and two of SM120's tiles with all the shared memory the card has, to measure what the 99 KB budget
// costs.
template <class Format>
using OwnLimitTiles = std::conditional_t<std::is_same_v<Format, record::Nvfp4>,
                                         moe::RowList<Wide<plan::Sm90, moe::W4a16Mma, Format, 128, 128, 64>,
                                                      Wide<plan::Sm90, moe::W4a16Mma, Format, 256, 128, 64>>,
                                         moe::RowList<>>;
template <class Format>
using WgmmaTiles = moe::Join<NamedTiles<Grouped, plan::Sm90, moe::W4a16Wgmma, Format>,
                             NarrowTiles<Grouped, plan::Sm90, moe::W4a16Wgmma, Format>, ShortTiles<Format>,
                             OwnLimitTiles<Format>>;

// The wider weights of dense matrices. A bf16 record has 4,096 bytes, so fewer shapes keep two stages within
// SM120's shared memory.
template <class Arch>
using Bf16MmaTiles = moe::RowList<Wide<Arch, moe::W4a16Mma, record::Bf16Format, 128, 128, 64>,   //
                                  Wide<Arch, moe::W4a16Mma, record::Bf16Format, 128, 64, 128>,   //
                                  Wide<Arch, moe::W4a16Mma, record::Bf16Format, 128, 32, 128>,   //
                                  Wide<Arch, moe::W4a16Mma, record::Bf16Format, 128, 16, 128>>;  //
template <class Arch>
using Fp8MmaTiles = moe::RowList<Wide<Arch, moe::W4a16Mma, record::Fp8Format, 128, 128, 64>,   //
                                 Wide<Arch, moe::W4a16Mma, record::Fp8Format, 256, 128, 64>,   //
                                 Wide<Arch, moe::W4a16Mma, record::Fp8Format, 128, 64, 128>,   //
                                 Wide<Arch, moe::W4a16Mma, record::Fp8Format, 128, 32, 128>,   //
                                 Wide<Arch, moe::W4a16Mma, record::Fp8Format, 128, 16, 128>>;  //
// Hopper: two or four warpgroups of 64 rows, each with all the tokens of the tile. The tile of 256 tokens has
// a half and a quarter of them as widths, the others every width of sixteen.
template <class Format>
using PlainWgmmaTiles = moe::RowList<
    Grouped<plan::Sm90, moe::W4a16Wgmma, Format, 256, 128, 64>,  //
    Grouped<plan::Sm90, moe::W4a16Wgmma, Format, 128, 256, 64>,  //
    TileKernel<TileRow<TileShape<plan::Sm90, moe::W4a16Wgmma, Format, 128, 128, 64, 8, 4, 1, true>>>,
    TileKernel<TileRow<TileShape<plan::Sm90, moe::W4a16Wgmma, Format, 128, 64, 64, 8, 4, 1, true>>>,
    Grouped<plan::Sm90, moe::W4a16Wgmma, Format, 256, 64, 64>>;

// FP8 x FP8: two warpgroups, so that one adds sums up while the other multiplies. 256 tokens need the fewest
// bytes of L2 a product, 128 and 64 are for matrices and prompts that would leave SMs without work.
using Fp8Fp8Tiles = moe::RowList<Grouped<plan::Sm90, moe::W8a8Wgmma, record::Fp8Format, 128, 256, 128>,  //
                                 Grouped<plan::Sm90, moe::W8a8Wgmma, record::Fp8Format, 128, 128, 128>,  //
                                 Grouped<plan::Sm90, moe::W8a8Wgmma, record::Fp8Format, 128, 64, 128>>;

// The same with mma.
template <class Arch>
using Fp8Fp8MmaTiles = moe::RowList<Wide<Arch, moe::W8a8Mma, record::Fp8Format, 128, 128, 128>,  //
                                    Wide<Arch, moe::W8a8Mma, record::Fp8Format, 128, 64, 128>,   //
                                    Wide<Arch, moe::W8a8Mma, record::Fp8Format, 128, 32, 128>>;

template <class Arch>
using Fp4Tiles = moe::Join<NamedTiles<Wide, Arch, moe::W4a4, record::Nvfp4>, NarrowFp4Tiles<Arch>>;
// MXFP4 tokens are a verified row, not a path that serves.
template <class Arch>
using Mxfp4Tiles = moe::RowList<Wide<Arch, moe::W4a4, record::Mxfp4, 128, 128, 64>>;

// gpt-oss, as released and in bf16: the tiles that choose() takes.
template <class Arch>
using ClampedTiles = moe::RowList<WideClamped<Arch, record::Mxfp4, 128, 8, 256>,        //
                                  WideClamped<Arch, record::Mxfp4, 128, 16, 256>,       //
                                  WideClamped<Arch, record::Mxfp4, 128, 32, 128>,       //
                                  WideClamped<Arch, record::Bf16Format, 128, 16, 128>,  //
                                  WideClamped<Arch, record::Bf16Format, 128, 32, 128>,  //
                                  WideClamped<Arch, record::Bf16Format, 128, 64, 128>,  //
                                  WideClamped<Arch, record::Bf16Format, 128, 128, 64>>;
using ClampedWgmmaTiles =
    moe::RowList<GroupedClamped<record::Mxfp4, 64, 128>, GroupedClamped<record::Mxfp4, 128, 128>,
                 GroupedClamped<record::Bf16Format, 64, 64>, GroupedClamped<record::Bf16Format, 128, 64>>;

// Hopper's own.
using HopperTiles =
    moe::Join<WgmmaTiles<record::Nvfp4>, WgmmaTiles<record::Mxfp4>, PlainWgmmaTiles<record::Bf16Format>,
              PlainWgmmaTiles<record::Fp8Format>, Fp8Fp8Tiles, ClampedWgmmaTiles>;

template <class Chip, class Arch = typename Chip::Shared>
using Rows =
    moe::Join<MmaTiles<Arch, record::Nvfp4>, MmaTiles<Arch, record::Mxfp4>, Fp4Tiles<Arch>, Mxfp4Tiles<Arch>,
              Bf16MmaTiles<Arch>, Fp8MmaTiles<Arch>, ClampedTiles<Arch>,
              moe::If<Chip::has_fp8_mma, Fp8Fp8MmaTiles<Arch>>, moe::If<Chip::has_wgmma, HopperTiles>>;

template <class Row>
std::string row_name() {
  constexpr bool own_limit =
      std::is_same_v<typename Row::Arch, plan::Sm90> && std::is_same_v<typename Row::Path, moe::W4a16Mma>;
  return moe::row_name("moe_gemm", Row::m, Row::n, Row::k,
                       moe::path_name<typename Row::Path, typename Row::Format>(), Row::Format::name) +
         (own_limit ? " own-limit" : "") + (Row::Glu::adds_bias ? moe::kClampedName : "");
}

template <class Row>
std::vector<plan::RowPart> row_parts() {
  using Storage = typename Row::Storage;
  std::vector<plan::RowPart> parts;
  int counted = 0;
  const auto add = [&](const char* name, std::size_t bytes) {
    parts.push_back({name, static_cast<int>(bytes)});
    counted += static_cast<int>(bytes);
  };
  if constexpr (Row::two_rings) {
    add("token panels", sizeof(Storage::tokens));
    add("weight records", sizeof(Storage::weights));
    add("barriers", sizeof(Storage::weights_full) + sizeof(Storage::weights_empty) +
                        sizeof(Storage::tokens_full) + sizeof(Storage::tokens_empty));
  } else if constexpr (Row::Path::half_tokens) {
    add("token panels", sizeof(Storage::tokens));
    add("weight records", sizeof(Storage::weights));
    if constexpr (moe::kUsesWgmma<typename Row::Path>) add("epilogue staging", sizeof(Storage::staging));
    add("barriers", sizeof(Storage::full) + sizeof(Storage::empty));
  } else {
    using Stage = typename Storage::Stage;
    add("weight records", Row::stages * sizeof(Stage::weights));
    add("token records", Row::stages * sizeof(Stage::tokens));
    add("barriers", sizeof(Storage::full) + sizeof(Storage::empty));
  }
  if (const int padding = static_cast<int>(sizeof(Storage)) - counted; padding > 0) add("padding", padding);
  return parts;
}

template <class Row>
plan::RowFacts row_facts() {
  plan::RowFacts facts("moe_gemm", row_name<Row>(), Row::Arch::name,
                       moe::path_name<typename Row::Path, typename Row::Format>(), Row::Format::name,
                       "prefill");
  facts.m = Row::m;
  facts.n = Row::n;
  facts.k = Row::k;
  facts.threads = Row::threads;
  facts.math_warps = Row::math_warps;
  facts.producer_warps = Row::producer_warps;
  facts.stages = Row::stages;
  facts.parts = row_parts<Row>();
  facts.total_bytes = static_cast<int>(sizeof(typename Row::Storage));
  facts.limit_bytes = Row::smem_limit;
  facts.registers = Row::launch_registers;
  facts.blocks_per_sm = Row::blocks_per_sm;
  facts.clamps = Row::Glu::adds_bias;
  return facts;
}

}  // namespace fourfold::moe_gemm
