// The arguments and limits of the few-token kernels.
#pragma once

#include <cstdint>

#include "kernels/moe/tables.h"

namespace fourfold::moe_few {

inline constexpr int kFewTokens = 4;
inline constexpr int kFewPairs = kFewTokens * moe::kMaxTopK;
// Units (tile, segment of K) that GEMM2's shared memory has room for; more pairs take the general path.
inline constexpr int kMaxUnits = 96;

struct FewParams {
  const float* logits;  // [tokens, experts]
  std::int32_t tokens;  // 1..kFewTokens
  std::int32_t experts;
  std::int32_t top_k;
  bool renormalise;
};

}  // namespace fourfold::moe_few
