// What happens when the depth of a pipeline is computed apart from the storage that holds it. This is a
// working model of the grouped block-scaled GEMM that FlashInfer and TensorRT-LLM build from CUTLASS (4.4.2
// and later) for SM120: the formula on one side, the storage as real structs on the other, never comparing
// the two. For 256x128x128 with the fused finalize epilogue the formula says 3 stages and the struct says
// 102,400 bytes of the 101,376 there are (cutlass#3096, cutlass#3144). `fourfold plan --explain` prints it
// step by step.
//
// Nothing in this project is sized by it. Names in parentheses are those of CUTLASS's sources.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/arch.h"
#include "plan/tile.h"

namespace fourfold::plan::separate {

enum class Operands { nvfp4, mxfp4, mxfp8_mxfp4 };
enum class Epilogue { plain, finalize };

// The kernel whose budget is modelled. tile.m and tile.n follow that library's naming.
struct Kernel {
  Tile tile{};
  Operands operands = Operands::nvfp4;
  Epilogue epilogue = Epilogue::plain;
  bool swap_ab = false;         // output stored column-major
  int tensor_alignment = 1024;  // alignas of smem_A and smem_B

  constexpr bool operator==(const Kernel&) const = default;
};

// One K-block of scale factors covers 128 rows x 4 scales (Blk_MN, Blk_SF): the unit every size below is
// rounded to.
inline constexpr int kScaleBlockRows = 128;
inline constexpr int kScaleBlockScales = 4;

constexpr int scale_vector(Operands operands) { return operands == Operands::nvfp4 ? 16 : 32; }
// In an FP8 x FP4 product both operands take a byte an element in shared memory.
constexpr int element_bits(Operands operands) { return operands == Operands::mxfp8_mxfp4 ? 8 : 4; }

// ---- Scale-factor folding --------------------------------------------------------------------------------

struct Folding {
  int vector;  // values that share a scale
  int k;
  int scales_per_row;  // K / vector
  int block_extent;   // K / vector / 4: the extent of the outer mode of the layout; zero extents have no form
  int folded_scales;  // min(K / vector, 4): what a folded block would hold (EffBlk_SF)
  bool has_form_elsewhere;
  int record_scales_per_row;  // in our tile record, whose 64 columns carry their own scales
  int record_scale_bytes;     // per record of 32 rows
  bool has_form_here;         // every K that is a multiple of the record's 64 columns
};

constexpr Folding folding_at(int k, int vector) {
  const int scales = k / vector;
  return {.vector = vector,
          .k = k,
          .scales_per_row = scales,
          .block_extent = scales / kScaleBlockScales,
          .folded_scales = std::min(scales, kScaleBlockScales),
          .has_form_elsewhere = scales / kScaleBlockScales > 0,
          .record_scales_per_row = kRecordColumns / vector,
          .record_scale_bytes = kRecordRows * kRecordColumns / vector,
          .has_form_here = k > 0 && k % kRecordColumns == 0};
}

// The scale-factor layouts exist: whole 128-row blocks of A, B padded up to one, and a K-block that is not
// empty.
constexpr bool has_scale_layout(const Kernel& kernel) {
  const Tile& tile = kernel.tile;
  return tile.m > 0 && tile.m % kScaleBlockRows == 0 && tile.n > 0 &&
         (tile.n < kScaleBlockRows || tile.n % kScaleBlockRows == 0) &&
         folding_at(tile.k, scale_vector(kernel.operands)).has_form_elsewhere;
}

// ---- The formula: bytes per stage, as the depth computation counts them ----------------------------------

template <int Count>
struct Barriers {
  std::uint64_t full[Count];
  std::uint64_t empty[Count];
};

struct alignas(64) TensorMap {
  std::byte opaque[128];  // CUtensorMap
};

constexpr int a_stage_bytes(const Kernel& kernel) {
  return kernel.tile.m * kernel.tile.k * element_bits(kernel.operands) / 8;
}
constexpr int b_stage_bytes(const Kernel& kernel) {
  return kernel.tile.n * kernel.tile.k * element_bits(kernel.operands) / 8;
}
// Scales are a byte each, for whole blocks of 128 rows.
constexpr int scale_stage_bytes(const Kernel& kernel, int rows) {
  const int blocks = std::max(rows, kScaleBlockRows) / kScaleBlockRows;
  const Folding folding = folding_at(kernel.tile.k, scale_vector(kernel.operands));
  return blocks * kScaleBlockRows * kScaleBlockScales * folding.block_extent;
}
// A barrier pair of 16 bytes, rounded up to 128 (mainloop_pipeline_bytes).
inline constexpr int kStageBarrierAllowance = 128;

constexpr int stage_bytes(const Kernel& kernel) {
  return a_stage_bytes(kernel) + b_stage_bytes(kernel) + scale_stage_bytes(kernel, kernel.tile.m) +
         scale_stage_bytes(kernel, kernel.tile.n) + kStageBarrierAllowance;
}

// What the formula sets aside first (ReducedSmemCapacityBytes): the tile scheduler's eight-deep pipeline,
// two of the seven tensor maps the kernel really holds, and the three-deep pipeline that announces them.
inline constexpr int kSchedulerDepth = 8;
inline constexpr int kCountedTensorMaps = 2;
inline constexpr int kMapReadyDepth = 3;
inline constexpr int kSchedulerAllowance = static_cast<int>(sizeof(Barriers<kSchedulerDepth>));
inline constexpr int kTensorMapAllowance = kCountedTensorMaps * static_cast<int>(sizeof(TensorMap));
inline constexpr int kMapReadyAllowance = static_cast<int>(sizeof(Barriers<kMapReadyDepth>));
inline constexpr int kCapacityBytes =
    Sm120::smem_bytes_per_block - kSchedulerAllowance - kTensorMapAllowance - kMapReadyAllowance;

constexpr int depth_by_division(int capacity_bytes, int carveout_bytes, int bytes_per_stage) {
  return (capacity_bytes - carveout_bytes) / bytes_per_stage;
}

// ---- The storage: real structs, whose sizeof is what the launch asks for ---------------------------------

// The epilogue stores bf16 subtiles of 64x32 (128xN for fewer than 16 columns), at most two in flight.
// Without fusion C and D have one width, so C's buffers serve D too and one more is kept. The finalize
// epilogue has no D tensor of its own (it scatters to the output), so nothing is reused and both arrays
// stand side by side.
template <Kernel Of>
struct EpilogueShape {
  static constexpr int m = Of.tile.n < 16 ? 128 : 64;
  static constexpr int n = std::min(Of.tile.n, 32);
  static constexpr int output_bytes = 2;  // bf16
  static constexpr int subtile_bytes = m * n * output_bytes;
  static constexpr int subtiles = (Of.tile.m / m) * (Of.tile.n / n);
  static constexpr int d_depth = std::min(subtiles, 2);
  static constexpr bool reuses_c = Of.epilogue == Epilogue::plain;
  static constexpr int c_depth = reuses_c ? d_depth + 1 : d_depth;
  static constexpr int tensor_bytes = subtile_bytes * (reuses_c ? c_depth : c_depth + d_depth);
  // A swizzle spans the contiguous run, 128 bytes at most, and repeats every eight: the array is aligned to
  // that.
  static constexpr int contiguous_bytes = (Of.swap_ab ? m : n) * output_bytes;
  static constexpr int alignment = 8 * std::min(contiguous_bytes, 128);
};

// The fusion callbacks keep nothing in shared memory. An empty member still has a byte and a byte after an
// aligned array costs the array's whole alignment: 512 bytes for nothing.
struct NoFusionState {};

template <Kernel Of>
struct EpilogueTensors {
  alignas(EpilogueShape<Of>::alignment) std::byte c_and_d[EpilogueShape<Of>::tensor_bytes];
  NoFusionState fusion;
};

struct alignas(128) EpilogueMaps {
  TensorMap c;
  TensorMap d[2];  // one per consumer warp group
};

// What the builder subtracts as carve-out: the epilogue's own idea of its storage, rounded to its own
// alignment.
template <Kernel Of>
struct EpilogueStorage {
  EpilogueTensors<Of> tensors;
  EpilogueMaps maps;
  Barriers<EpilogueShape<Of>::c_depth> load_pipeline;
};

template <Kernel Of, int Stages>
struct MainloopTensors {
  static_assert(Of.tensor_alignment >= 128, "bulk tensor copies write to 128-byte boundaries");
  alignas(Of.tensor_alignment) std::byte a[Stages * a_stage_bytes(Of)];
  alignas(Of.tensor_alignment) std::byte b[Stages * b_stage_bytes(Of)];
  alignas(16) std::byte scales_a[Stages * scale_stage_bytes(Of, Of.tile.m)];
  alignas(16) std::byte scales_b[Stages * scale_stage_bytes(Of, Of.tile.n)];
};

struct WorkTile {
  std::int32_t m_index, n_index, group_index, is_valid;
};

template <Kernel Of, int Stages>
struct KernelStorage {
  struct Tensors {
    MainloopTensors<Of, Stages> mainloop;
    EpilogueTensors<Of> epilogue;
  } tensors;
  struct alignas(16) Pipelines {
    alignas(16) Barriers<kSchedulerDepth> scheduler;
    alignas(16) Barriers<Stages> mainloop;
    alignas(16) Barriers<EpilogueShape<Of>::c_depth> epilogue_load;
    alignas(16) std::uint64_t load_order[2];
  } pipelines;
  alignas(16) WorkTile scheduler_response[kSchedulerDepth];
  struct alignas(128) Maps {
    alignas(128) TensorMap mainloop[4];  // A, B and their scales
    alignas(128) EpilogueMaps epilogue;
  } maps;
};

// ---- The comparison nobody made --------------------------------------------------------------------------

enum class Verdict {
  fits,
  overflows,        // more bytes than a block may use: refused at launch, with an internal error
  too_shallow,      // fewer than two stages: refused when that library is compiled
  no_scale_layout,  // a layout with an empty extent: a template error there
  outside_model,    // a tile this model has not been instantiated for
};

struct Budget {
  Kernel kernel{};
  Verdict verdict = Verdict::outside_model;
  // The formula.
  int a_bytes = 0, b_bytes = 0, scales_a_bytes = 0, scales_b_bytes = 0;  // of one stage
  int stage_bytes = 0;
  int carveout_bytes = 0;
  int stages = 0;
  // The storage; zero unless it has at least two stages.
  int mainloop_bytes = 0;      // the four arrays over all stages, without padding
  int epilogue_bytes = 0;      // the epilogue's tensors
  int sum_bytes = 0;           // mainloop + epilogue: what a hand calculation gives
  int tensor_block_bytes = 0;  // the same after its own alignment: where the pipelines start
  int pipelines_bytes = 0;
  int maps_offset_bytes = 0;  // after the pipelines, the scheduler's responses and rounding to 128
  int maps_bytes = 0;
  int end_bytes = 0;      // end of the last member
  int content_bytes = 0;  // the sum without the two roundings to the tensors' alignment
  int total_bytes = 0;    // sizeof: what the launch asks for
  int limit_bytes = Sm120::smem_bytes_per_block;

  int over_bytes() const { return total_bytes - limit_bytes; }
};

// Compiles the kernel's storage and compares it with the depth the formula chose.
template <Kernel Of>
constexpr Budget measure() {
  Budget budget{.kernel = Of};
  if constexpr (!has_scale_layout(Of)) {
    budget.verdict = Verdict::no_scale_layout;
    return budget;
  } else {
    budget.a_bytes = a_stage_bytes(Of);
    budget.b_bytes = b_stage_bytes(Of);
    budget.scales_a_bytes = scale_stage_bytes(Of, Of.tile.m);
    budget.scales_b_bytes = scale_stage_bytes(Of, Of.tile.n);
    budget.stage_bytes = separate::stage_bytes(Of);
    constexpr int carveout_bytes = static_cast<int>(sizeof(EpilogueStorage<Of>));
    constexpr int stages = depth_by_division(kCapacityBytes, carveout_bytes, separate::stage_bytes(Of));
    budget.carveout_bytes = carveout_bytes;
    budget.stages = stages;
    if constexpr (stages < 2) {
      budget.verdict = Verdict::too_shallow;
    } else {
      using Storage = KernelStorage<Of, stages>;
      budget.mainloop_bytes = stages * (separate::stage_bytes(Of) - kStageBarrierAllowance);
      budget.epilogue_bytes = static_cast<int>(sizeof(EpilogueTensors<Of>));
      budget.sum_bytes = budget.mainloop_bytes + budget.epilogue_bytes;
      budget.tensor_block_bytes = static_cast<int>(sizeof(typename Storage::Tensors));
      budget.pipelines_bytes = static_cast<int>(sizeof(typename Storage::Pipelines));
      budget.maps_offset_bytes = static_cast<int>(offsetof(Storage, maps));
      budget.maps_bytes = static_cast<int>(sizeof(typename Storage::Maps));
      budget.end_bytes = budget.maps_offset_bytes + budget.maps_bytes;
      budget.content_bytes = budget.sum_bytes + budget.end_bytes - budget.tensor_block_bytes;
      budget.total_bytes = static_cast<int>(sizeof(Storage));
      budget.verdict = budget.total_bytes <= budget.limit_bytes ? Verdict::fits : Verdict::overflows;
    }
    return budget;
  }
}

// The same for a tile known at run time. Instantiated for M 128 and 256, N 8 to 256, K 64 to 512 (powers of
// two), with tensors aligned to 1,024 as shipped or to 128; anything else is outside_model, unless it has no
// scale layout at all.
Budget budget_of(const Kernel& kernel);

std::string_view operands_name(Operands operands);  // "nvfp4"
std::string_view epilogue_name(Epilogue epilogue);  // "finalize"
std::string verdict_text(const Budget& budget);     // "over by 1,024 bytes"

}  // namespace fourfold::plan::separate
