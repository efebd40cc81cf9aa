// The arguments of the all-reduce: x += part of rank 0 + part of rank 1 + ..., on every rank, in that order.
#pragma once

#include <cstdint>

#include "kernels/device/types.h"

namespace fourfold::all_reduce {

inline constexpr int kRanksMost = 8;
inline constexpr int kThreads = 256;
// Blocks of a rank. Few: where several ranks share one GPU all of them must be resident at once.
inline constexpr int kBlocksMost = 16;

struct CarriedCall {
  std::uint32_t quads;
  std::uint32_t place;
};

// What belongs to one rank. Of other ranks only `receive`, `sums` and `flags` are looked at.
struct RankPlaces {
  float* x;                // [rows, columns]
  float* part;             // [rows, columns] this rank's addend; zeros when the kernel has ended
  std::uint16_t* normed;   // [rows, columns] the norm of the new x, for rows that norm
  device::F32x4* receive;  // [2, ranks, capacity] parts of the others, by parity of the epoch; one for all
                           // ranks where they meet in the host's memory
  device::F32x4* sums;     // [2, ranks, capacity] two_shot: finished slices of the others
  std::uint32_t* flags;    // [2 phases, ranks, blocks] the epoch a source has finished sending
  std::uint32_t* epochs;   // [blocks] of the next call; begins at 1
  std::uint32_t* report;   // [ranks] in the host's memory: not 0, 1 + the place where a rank did not answer
};

struct AllReduceParams {
  RankPlaces rank[kRanksMost];
  const std::uint32_t* stop;  // in the host's memory: not 0 ends every wait
  // In the host's memory, for whoever carries parts between processes (bridged_exchange.h); null: nobody
  // does. [2] by parity of the epoch: how many quads this rank sends, and the call's place.
  CarriedCall* carried;
  const float* norm_weight;  // [columns], 1 + w already; for rows that norm
  float epsilon;
  std::int32_t first_rank;  // of block 0; block b is of rank first_rank + b / blocks
  std::int32_t ranks;
  std::int32_t blocks;   // of a rank, the same in every call
  std::int32_t rows;     // > 0
  std::int32_t columns;  // a multiple of 8; for rows that norm at most dense::kNormColumnsMax
  // all_gather: a rank's part has `columns` columns, of which the first gather_columns go side by side into
  // x.
  std::int32_t gather_columns;
  std::int32_t out_stride;  // of x
  std::int32_t place;       // the caller's number for this call, 0 or more: what a report says
  std::int32_t overlaps;    // not 0: dependents may come while this waits; not where ranks share a GPU
  std::int64_t capacity;  // quads of columns that fit a source's place: all of them, or a slice for two_shot
  std::uint64_t wait_nanoseconds;  // for a rank's answer, then it has failed
};

}  // namespace fourfold::all_reduce
