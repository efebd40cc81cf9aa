// A row of the tiled kernel: the tile, its warps, and its shared memory as one struct. Depth, launch size,
// expected bytes and the printed table are all sizeof of that struct; a row that does not fit its chip does
// not compile.
#pragma once

#include <type_traits>

#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/paths.h"
#include "plan/arch.h"
#include "plan/budget.h"

namespace fourfold::moe_gemm {

// N rows x 128 bytes in the 128-byte swizzle: bf16 tokens of 64 columns in staged order, or E4M3 ones of 128.
template <int N>
struct alignas(1024) TokenPanel {
  static_assert(N % 8 == 0, "the swizzle pattern repeats every 8 rows");
  unsigned char rows[N * 128];
};

template <class Shape>
struct WeightStage {
  record::WeightRecord<typename Shape::Format> strip[Shape::m / record::kRows][Shape::k / record::kColumns];
};

// 16-bit paths: a ring of weight stages (K columns each) and a ring of token panels (64 columns each). bf16
// tokens are 3.5 times as heavy as the weights they meet, so they come in the smaller steps.
template <class Shape, int Stages, int Panels>
struct HalfStorage {
  TokenPanel<Shape::n> tokens[Panels];
  WeightStage<Shape> weights[Stages];
  device::Mbarrier weights_full[Stages];   // the records of the stage have landed
  device::Mbarrier weights_empty[Stages];  // every math warp has read them
  device::Mbarrier tokens_full[Panels];
  device::Mbarrier tokens_empty[Panels];
};

// Bytes of a token that a warpgroup's 64 weight rows make, and the distance of two tokens in the staging
// buffer: a chunk more, so that the words of eight tokens lie in different banks.
inline constexpr int kGateUpRowBytes = 64;  // 32 neurons
inline constexpr int kPlainRowBytes = 128;
constexpr int staging_pitch_bytes(int row_bytes) { return row_bytes + 16; }
// Gate/up results of so many tokens, which is also room for at least eight plain rows.
constexpr int staging_bytes(int tokens) {
  const int gate_up = tokens * staging_pitch_bytes(kGateUpRowBytes),
            eight_rows = 8 * staging_pitch_bytes(kPlainRowBytes);
  return gate_up > eight_rows ? gate_up : eight_rows;
}

// Tokens that pass through the staging buffer at once: the whole tile, or half of it where the bytes make
// another stage of bf16 or W8A8 operands.
template <class Shape>
inline constexpr int kStagedTokens = (std::is_same_v<typename Shape::Format, record::Bf16Format> &&
                                      Shape::n >= 128) ||
                                             (Shape::Path::token_bytes == 1 && Shape::n >= 256)
                                         ? Shape::n / 2
                                         : Shape::n;

// Warpgroup path: one ring for both operands, because every wait of sixteen math warps costs issue slots.
// Results leave through a buffer of their own, so that the next item's copies never wait for them.
template <class Shape, int Stages>
struct GroupStorage {
  TokenPanel<Shape::n> tokens[Stages][Shape::token_panels_of_stage];
  WeightStage<Shape> weights[Stages];
  alignas(16) unsigned char staging[Shape::math_warps / 4][staging_bytes(kStagedTokens<Shape>)];
  device::Mbarrier full[Stages];   // records and token rows have landed
  device::Mbarrier empty[Stages];  // every math warp's products have read them
};

// FP8 with mma: the same ring; results go to memory straight from registers.
template <class Shape, int Stages>
struct Fp8Storage {
  TokenPanel<Shape::n> tokens[Stages][Shape::token_panels_of_stage];
  WeightStage<Shape> weights[Stages];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// FP4 path: tokens are as light as weights; one ring holds both.
template <class Shape, int Stages>
struct Fp4Storage {
  struct Stage {
    WeightStage<Shape> weights;
    record::TokenRecord tokens[Shape::n / record::kTokens][Shape::k / record::kColumns];
  };
  Stage stage[Stages];
  device::Mbarrier full[Stages];
  device::Mbarrier empty[Stages];
};

// ArchT gives the budget; MathWarps and ProducerWarps the roles. Warps of the math role form a grid of
// m16-tile rows (see tiles_per_warp) times token columns. FineWidths: see padded_columns in tile_walk.h.
template <class ArchT, class PathT, class FormatT, int M, int N, int K, int MathWarpsN, int ProducerWarpsN,
          int BlocksN = 1, bool FineWidths = !moe::kUsesWgmma<PathT>, class GluT = moe::SwiGlu>
struct TileShape {
  using Arch = ArchT;
  using Path = PathT;
  using Format = FormatT;
  using Glu = GluT;  // what becomes of gate and up (moe/gemm_params.h)
  static constexpr int m = M, n = N, k = K;
  static constexpr int strips = M / record::kRows;
  static constexpr int panels = K / record::kColumns;
  static constexpr int record_token_bytes = record::kColumns * PathT::token_bytes;  // of a token
  static constexpr int token_panels_of_stage = panels * record_token_bytes / 128;
  static constexpr int math_warps = MathWarpsN;
  static constexpr int producer_warps = ProducerWarpsN;
  static constexpr int threads = 32 * (MathWarpsN + ProducerWarpsN);
  static constexpr int blocks_per_sm = BlocksN;
  static constexpr bool fine_widths = FineWidths;
  static constexpr int smem_limit = plan::smem_budget_for(ArchT::facts, BlocksN);

  // m16 tiles of a strip that one warp multiplies: both when there are enough strips for the warps, else one.
  static constexpr int tiles_per_warp = math_warps > strips&& std::is_same_v<PathT, moe::W4a16Mma> ? 1 : 2;
  static constexpr int warps_along_m = strips * 2 / tiles_per_warp;
  static constexpr int warps_along_n = math_warps / warps_along_m;
  static constexpr int tokens_per_warp = N / (warps_along_n > 0 ? warps_along_n : 1);

  static_assert(M % record::kRows == 0 && K % record::kColumns == 0 && N % 8 == 0);
  static_assert(plan::FitsThreads<threads, ArchT::threads_per_block_max>::value);
};

inline constexpr int kMaxStages = 12;
inline constexpr int kMaxPanels = 16;  // deeper rings hide nothing more and need barriers

// Depth of the two rings; the one ring of the FP4 path has no panels of its own.
struct Depth {
  int stages;
  int panels;
};

template <class Shape, int Stages, int Panels>
using TileStorage = std::conditional_t<
    moe::kUsesWgmma<typename Shape::Path>, GroupStorage<Shape, Stages>,
    std::conditional_t<moe::kTakesFp8<typename Shape::Path>, Fp8Storage<Shape, Stages>,
                       std::conditional_t<Shape::Path::half_tokens, HalfStorage<Shape, Stages, Panels>,
                                          Fp4Storage<Shape, Stages>>>>;

template <class Shape, int Stages, int Panels>
inline constexpr bool kFits = (Stages == 2 || Panels <= kMaxPanels) &&
                              sizeof(TileStorage<Shape, Stages, Panels>) <=
                                  static_cast<std::size_t>(Shape::smem_limit);

// The deepest pipeline, read off sizeof the real storage so that padding cannot be forgotten. Both rings as
// deep as each other if at least two stages fit that way; else two weight stages and as many token panels as
// there is room for.
template <class Shape, int Stages = kMaxStages>
constexpr int deepest_stages() {
  if constexpr (Stages <= 1)
    return 0;
  else if constexpr (kFits<Shape, Stages, Stages * Shape::panels>)
    return Stages;
  else
    return deepest_stages<Shape, Stages - 1>();
}
template <class Shape, int Panels = 2 * Shape::panels>
constexpr int deepest_panels() {
  if constexpr (Panels <= 1)
    return 0;
  else if constexpr (kFits<Shape, 2, Panels>)
    return Panels;
  else
    return deepest_panels<Shape, Panels - 1>();
}
template <class Shape>
constexpr Depth deepest_pipeline() {
  constexpr int stages = deepest_stages<Shape>();
  if constexpr (stages >= 2)
    return {stages, stages * Shape::panels};
  else if constexpr (Shape::Path::half_tokens)
    return {2, deepest_panels<Shape>()};
  else
    return {0, 0};
}

template <class ShapeT>
struct TileRow : ShapeT {
  using Shape = ShapeT;
  static constexpr Depth depth = deepest_pipeline<ShapeT>();
  static constexpr int stages = depth.stages;
  static constexpr bool two_rings = std::is_same_v<typename ShapeT::Path, moe::W4a16Mma>;
  static constexpr int token_panels = depth.panels;
  // A shape that does not fit at two stages is named with the bytes those would need.
  using Storage = TileStorage<ShapeT, (stages >= 2 ? stages : 2), (token_panels >= 2 ? token_panels : 2)>;
  static_assert(plan::FitsSharedMemory<sizeof(Storage), ShapeT::smem_limit>::value);
  static_assert(stages >= 2 && token_panels >= 2, "a one-stage pipeline cannot overlap loads with math");

  // Producers are a whole warpgroup where setmaxnreg moves registers to the math warps.
  static constexpr bool hands_over_registers = ShapeT::producer_warps % 4 == 0 && ShapeT::math_warps % 4 == 0;
  static constexpr int launch_registers =
      plan::registers_at(ShapeT::Arch::facts, ShapeT::threads, ShapeT::blocks_per_sm);
  // A producer thread keeps a number for each of its token rows. With sixteen math warps the file has 32
  // registers left.
  static constexpr int gathered_rows =
      ShapeT::Path::half_tokens ? ShapeT::n / (4 * ShapeT::producer_warps) : 0;
  static constexpr int producer_registers = ShapeT::math_warps > 8 ? 32 : gathered_rows <= 8 ? 40 : 56;
  static constexpr int math_registers = hands_over_registers
                                            ? plan::round_down((launch_registers * ShapeT::threads / 32 -
                                                                producer_registers * ShapeT::producer_warps) /
                                                                   ShapeT::math_warps,
                                                               8)
                                            : launch_registers;
};

}  // namespace fourfold::moe_gemm
