// The arguments and limits of the few-token kernels.
#pragma once

#include <cstdint>

#include "kernels/moe/tables.h"

namespace fourfold::moe_few {

inline constexpr int kFewTokens = 4;
inline constexpr int kFewPairs = kFewTokens * moe::kMaxTopK;
// Token rows stand this far apart beyond their length, so that neighbouring rows lie in different banks.
inline constexpr int kRowPad = 64;
// What shared memory has room for; batches beyond it take the general path (few_choice() says so).
inline constexpr int kGateUpTokenBytes = 16640;  // GEMM1's tokens: four of 2,048 columns, two of 4,096
inline constexpr int kMaxSegments = 8;           // of GEMM1's K: a warp each
inline constexpr int kDownTokenBytes = 23232;    // GEMM2's: eleven pairs of 1,024 columns, 21 of 512
inline constexpr int kMaxUnits = 96;             // sums of GEMM2: (pair, segment of K)

// Bytes from one token row to the next in shared memory.
constexpr int row_stride(int columns) { return 2 * columns + kRowPad; }

struct FewParams {
  const float* logits;  // [tokens, experts]
  std::int32_t tokens;  // 1..kFewTokens
  std::int32_t experts;
  std::int32_t top_k;
  bool renormalise;
};

}  // namespace fourfold::moe_few
