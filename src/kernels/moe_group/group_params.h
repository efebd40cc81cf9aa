// The arguments and sizes of the kernels that turn a caller's groups into token tiles.
#pragma once

#include <cstdint>

#include "kernels/moe/tables.h"

namespace fourfold::moe_group {

// Names of the rows.
inline constexpr const char* kTilesRow = "group_tiles";
inline constexpr const char* kScatterRow = "group_scatter";

inline constexpr int kTileThreads = 1024;  // one expert a thread
inline constexpr int kScatterThreads = 256;
static_assert(kTileThreads >= moe::kMaxExperts);

struct TileParams {
  const std::int32_t* offsets;  // [experts + 1]: expert e owns rows offsets[e] .. offsets[e + 1] - 1
  moe::TokenTile* tiles;
  std::int32_t* tile_count;
  std::int32_t*
      slot_token;  // null: a row is its own slot; else slots start at multiples of eight and this maps them
  std::int32_t experts;
  std::int32_t rows;  // room: offsets beyond it are refused
  std::int32_t tile_tokens;
};

struct ScatterParams {
  const unsigned char* from;  // [slots], row_bytes each
  unsigned char* to;          // [rows], likewise
  const moe::TokenTile* tiles;
  const std::int32_t* tile_count;
  const std::int32_t* slot_token;
  std::int32_t row_bytes;  // multiple of 16
};

struct TileStorage {
  std::int32_t offset[moe::kMaxExperts + 1];
  std::int32_t first_slot[moe::kMaxExperts];
  std::int32_t scan[2][kTileThreads / 32];
};

// Blocks of group_tiles: one, unless rows have to be mapped to slots too.
constexpr int tile_blocks(const TileParams& params, int most) {
  if (params.slot_token == nullptr) return 1;
  const int wanted = (params.rows + kTileThreads - 1) / kTileThreads;
  return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

}  // namespace fourfold::moe_group
