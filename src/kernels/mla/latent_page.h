// The layout of a page of MLA's cache: kernels/mla alone writes and reads it. A position is one row of Latent
// + Rope bf16 numbers, the key of every head; its first Latent columns are the value of every head as well.
// So there is one copy of it in memory, and one in shared memory: scores read it by rows, values by columns.
//
//   page   64 positions = 2 tiles
//   tile   32 positions, one bulk copy: panels of 64 columns, each 32 rows of 128 bytes
//
// The 16-byte chunks of a row are swizzled as everywhere (device/types.h): eight neighbouring rows have their
// chunk of the same number in eight different bank groups, and so have eight lanes that read two neighbouring
// chunks of four rows that are two apart.
#pragma once

#include <cstdint>

#include "kernels/device/types.h"
#include "kernels/step/step_tables.h"

namespace fourfold::mla {

using step::kPageTokens;

inline constexpr int kTilePositions = 32;
inline constexpr int kPageTiles = kPageTokens / kTilePositions;
inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelBytes = kTilePositions * kPanelColumns * 2;

template <int LatentN, int RopeN>
struct LatentPage {
  static constexpr int latent = LatentN;
  static constexpr int rope = RopeN;
  static constexpr int width = LatentN + RopeN;
  static constexpr int panels = width / kPanelColumns;
  static constexpr int value_panels = LatentN / kPanelColumns;
  static constexpr int tile_bytes = panels * kPanelBytes;
  static constexpr int page_bytes = kPageTiles * tile_bytes;
  static_assert(LatentN % kPanelColumns == 0 && RopeN == kPanelColumns,
                "a latent of whole panels, and one panel of rotated columns");

  // Byte offset of a number in its page; eight columns from a multiple of eight on are neighbours.
  static constexpr std::uint32_t offset(int position, int column) {
    const int panel = column / kPanelColumns, within = column % kPanelColumns;
    return static_cast<std::uint32_t>(position / kTilePositions * tile_bytes + panel * kPanelBytes) +
           device::swizzled_offset(static_cast<std::uint32_t>(position % kTilePositions),
                                   static_cast<std::uint32_t>(within / 8)) +
           static_cast<std::uint32_t>(within % 8 * 2);
  }
};

}  // namespace fourfold::mla
