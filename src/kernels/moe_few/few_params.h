// The arguments and limits of the few-token kernels.
#pragma once

#include <cstdint>

#include "base/weight_format.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_rule.h"
#include "kernels/record/record.h"

namespace fourfold::moe_few {

inline constexpr const char* kStreamKernel = "moe_few_stream";  // the streamed GEMM1
inline constexpr int kFewTokens = 4;
inline constexpr int kSegmentRecords = moe::kSegmentColumns / record::kColumns;
inline constexpr int kFewTopK = 16;
inline constexpr int kFewPairs = kFewTokens * kFewTopK;
inline constexpr int kFewExperts = 512;  // ranking more is as much code as all the rest of GEMM1
// Token rows stand this far apart beyond their length, so that neighbouring rows lie in different banks.
inline constexpr int kRowPad = 64;
// What shared memory has room for; batches beyond it take the general path (few_choice() says so).
inline constexpr int kGateUpTokenBytes = 16640;  // GEMM1's tokens: four of 2,048 columns, two of 4,096
inline constexpr int kMaxSegments = 8;           // of GEMM1's K: a warp each
inline constexpr int kStreamSums = 64;           // of the streamed GEMM1: (strip, segment, token)
inline constexpr int kStreamTokenBytes = 12672;  // its tokens: two of 3,072 columns, one of 4,096
inline constexpr int kDownBytes = 32768;         // GEMM2's rows and sums, beside the rings of seven warps
static_assert(kStreamTokenBytes / (2 * moe::kSegmentColumns) + kFewTokens <= kStreamSums,
              "a strip of all tokens that fit has room for its sums");

// Bytes from one token row to the next in shared memory.
constexpr int row_stride(int columns) { return 2 * columns + kRowPad; }

// Consecutive records of one strip.
struct Stretch {
  const unsigned char* records = nullptr;
  int count = 0;
};

// What GEMM2 keeps of its pairs in shared memory, beside the rings.
struct DownBytes {
  int tokens;  // a row a pair
  int sums;    // a float a row of outputs, of each (pair, segment of K)
  int biases;  // a float a row of outputs, of each pair
  constexpr DownBytes(int pairs, int columns, int rows, bool adds_bias)
      : tokens(pairs * row_stride(columns)),
        sums(pairs * ((columns + moe::kSegmentColumns - 1) / moe::kSegmentColumns) * rows * 4),
        biases(adds_bias ? pairs * rows * 4 : 0) {}
  constexpr int total() const { return tokens + sums + biases; }
};

// The shared expert's second matrix, multiplied in the shadow of GEMM1 and added to the residual before the
// routed experts are. Its tokens are older than GEMM1, as the logits are.
struct SharedDown {
  const unsigned char* weights = nullptr;  // records [hidden / 32][records], plain row order; null: none
  const std::uint16_t* tokens = nullptr;   // [tokens, 64 * records] bf16
  const float* gate = nullptr;             // a logit a token, gate_stride apart; null: factor 1
  std::int32_t records = 0;
  std::int32_t gate_stride = 0;
  const float* row_scale = nullptr;          // [hidden]; null: 1
  WeightFormat format = WeightFormat::bf16;  // or fp8, nvfp4
};

struct FewParams {
  const float* logits;  // [tokens, experts]
  std::int32_t tokens;  // 1..kFewTokens
  std::int32_t experts;
  std::int32_t top_k;
  moe_route::RouteRule rule;
  // [tokens, hidden] f32: GEMM2 adds its result here, unrounded, instead of storing bf16. Null: it stores.
  float* residual = nullptr;
  std::int32_t logits_stride = 0;  // from one token's logits to the next's; 0: experts
  SharedDown shared = {};          // with a residual only
};

// What both kernels take. Of gemm, tiles, tile_count and slot_token are not read.
struct FewCall {
  FewParams few;
  moe::GemmParams gemm;
};

}  // namespace fourfold::moe_few
