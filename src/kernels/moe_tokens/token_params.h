// The arguments and sizes of the token kernels.
#pragma once

#include <cstdint>

#include "kernels/moe/tables.h"

namespace fourfold::moe_tokens {

// Names of the rows.
inline constexpr const char* kStageRow = "stage_tokens";
inline constexpr const char* kQuantizeRow = "quantize_tokens";

inline constexpr int kThreads = 256;

struct StageParams {
  const std::uint16_t* tokens;  // [tokens, columns] bf16
  std::uint16_t* staged;        // the same rows, staged order
  std::int64_t groups;          // tokens * columns / 32
};
constexpr int stage_blocks(const StageParams& params, int most) {
  const std::int64_t wanted = (params.groups + kThreads - 1) / kThreads;
  return wanted < most ? static_cast<int>(wanted) : most;
}

struct QuantizeParams {
  const std::uint16_t* tokens;  // [tokens, columns] bf16
  const moe::TokenTile* tiles;
  const std::int32_t* tile_count;
  const std::int32_t* slot_token;
  const float* inverse_input_scale;  // [experts]
  unsigned char* records;            // [slot / 8][columns / 64]
  std::int32_t column_records;       // columns / 64
};

}  // namespace fourfold::moe_tokens
