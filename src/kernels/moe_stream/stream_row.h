// A row of the streaming kernel: one type, its registers and its shared memory. See README.md for the
// picture.
#pragma once

#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe/paths.h"
#include "kernels/moe/tables.h"
#include "plan/arch.h"
#include "plan/budget.h"

namespace fourfold::moe_stream {

inline constexpr int kSegmentRecords = moe::kSegmentColumns / record::kColumns;
// Of a strip that warps share: K up to 8,192. Longer strips have a warp each.
inline constexpr int kMaxSegments = 16;

// Warps        warps of a block; each streams its own strips.
// Tokens       N, up to this many tokens of an expert per pass (multiple of 8).
// UnitRecords  records whose loop is unrolled: 8 when K is a multiple of 512 (or ragged, moe/loop_columns.h),
//              4 for 256, 1 for any K.
// Depth        weight records a warp keeps in flight in registers.
// Blocks       blocks per SM the registers are capped for.
// Glu          what becomes of gate and up (moe/gemm_params.h).
template <class ArchT, class PathT, class FormatT, int TokensN, int UnitRecordsN, int WarpsN, int DepthN,
          int BlocksN, class GluT = moe::SwiGlu>
struct StreamRow {
  using Arch = ArchT;
  using Path = PathT;
  using Format = FormatT;
  using Glu = GluT;
  static constexpr int tokens = TokensN;
  static constexpr int token_tiles = TokensN / 8;
  static constexpr int unit_records = UnitRecordsN;
  static constexpr int warps = WarpsN;
  static constexpr int threads = 32 * WarpsN;
  static constexpr int depth = DepthN;
  static constexpr bool ragged = moe::is_ragged(GluT::adds_bias, UnitRecordsN* record::kColumns);
  static constexpr int blocks_per_sm = BlocksN;
  static constexpr int record_bytes = record::kRecordBytes<FormatT>;
  // Sharing one strip between warps needs room for every segment's partial sums; wide rows do without it.
  static constexpr bool splits_strips = token_tiles <= 2;

  static_assert(tokens % 8 == 0 && tokens <= 64);
  // A warp that has no segment of one batch of shared strips has none of the next: where strips have fewer
  // segments than there are warps, all of them are one batch.
  static_assert((warps - 1) * (warps - 1) <= kMaxSegments);
  static_assert(!ragged || depth * record::kColumns <= moe::kRaggedColumns,
                "the last round has a record for every place");
  static_assert(kSegmentRecords % unit_records == 0 && depth <= unit_records);

  struct Storage {
    // Sums of the segments of shared strips: [strip of the batch and segment][tile][token tile][lane], four
    // floats a lane.
    device::F32x4 partial[splits_strips ? kMaxSegments : 1][2 * token_tiles * 32];
  };
  static_assert(plan::FitsSharedMemory<sizeof(Storage), plan::smem_budget_for(ArchT::facts, BlocksN)>::value);
};

}  // namespace fourfold::moe_stream
