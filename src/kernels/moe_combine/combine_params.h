// The arguments and sizes of the combine kernel.
#pragma once

#include <cstdint>

namespace fourfold::moe_combine {

// Names of the rows: by what the experts' rows hold.
inline constexpr const char* kF32Row = "combine f32";
inline constexpr const char* kBf16Row = "combine bf16";
// Sums in f32, and the norm of the residual stream they are added to.
inline constexpr const char* kNormRow = "combine_norm f32";

inline constexpr int kThreads = 128;
inline constexpr int kColumnsPerThread = 8;
inline constexpr int kColumnsPerBlock = kThreads * kColumnsPerThread;

// Rows that join the residual stream before the experts' sum does, times the sigmoid of a gate: the shared
// expert of prompts. x + sigmoid(gate) * y, rounded, then + sum, as a kernel before this one would have it.
struct JoinedRows {
  const std::uint16_t* rows = nullptr;  // [tokens, columns] bf16; null: there are none
  const float* gate = nullptr;          // one logit a token, gate_stride apart; null: factor 1
  std::int32_t gate_stride = 0;
};

struct CombineParams {
  const void* rows;               // [slots, columns]: f32 (decode) or bf16 (prefill), routing weight applied
  const std::int32_t* pair_slot;  // [tokens * top_k], complete before the predecessor started (GEMM1 had
                                  // waited for the router): read before the wait
  std::uint16_t* out;             // [tokens, columns] bf16
  std::int32_t tokens;
  std::int32_t top_k;
  std::int32_t columns;
  float* residual = nullptr;  // [tokens, columns] f32: add the sum here, unrounded, instead of storing bf16
  JoinedRows joined = {};     // with a residual and rows in bf16 alone
};

// The next layer's norm of the residual stream, behind the sum.
struct CombineNorm {
  const float* weight = nullptr;  // null: there is none
  float epsilon = 0;
  std::uint16_t* out = nullptr;  // [tokens, columns] bf16
};

// A block a token; with a residual, and nothing joined.
struct CombineNormParams {
  CombineParams combine;
  CombineNorm norm;
};

constexpr int blocks_per_token(int columns) { return (columns + kColumnsPerBlock - 1) / kColumnsPerBlock; }

}  // namespace fourfold::moe_combine
