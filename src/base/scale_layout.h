// Where the E4M3 block scale of (row, block) lies in memory. Linear is what checkpoints hold: [rows, blocks].
// 128x4 is what the block-scaled libraries and MMAs read: rows padded to 128, blocks to 4, padding zero, one
// 512-byte atom for 128 rows x 4 blocks with the four scales of a row in one 32-bit word; atoms of the same
// 128 rows are contiguous. Offsets are constexpr and run in kernels. The two layouts are two types: a buffer
// cannot be read as the wrong one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/e4m3.h"

namespace fourfold {

inline constexpr int kScaleAtomRows = 128;
inline constexpr int kScaleAtomBlocks = 4;
inline constexpr int kScaleAtomBytes = kScaleAtomRows * kScaleAtomBlocks;

constexpr std::int64_t padded_scale_rows(std::int64_t rows) {
  return (rows + kScaleAtomRows - 1) / kScaleAtomRows * kScaleAtomRows;
}
constexpr std::int64_t padded_scale_blocks(std::int64_t blocks) {
  return (blocks + kScaleAtomBlocks - 1) / kScaleAtomBlocks * kScaleAtomBlocks;
}
constexpr std::int64_t scale_bytes_linear(std::int64_t rows, std::int64_t blocks) { return rows * blocks; }
constexpr std::int64_t scale_bytes_128x4(std::int64_t rows, std::int64_t blocks) {
  return padded_scale_rows(rows) * padded_scale_blocks(blocks);
}

constexpr std::int64_t scale_offset_linear(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  return row * blocks + block;
}

// `blocks` is the unpadded count per row. Within an atom rows r, r + 32, r + 64 and r + 96 are neighbours:
// their words are what the four lanes of a quad supply to one block-scaled MMA.
constexpr std::int64_t scale_offset_128x4(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t atoms_per_row = padded_scale_blocks(blocks) / kScaleAtomBlocks;
  const std::int64_t atom = row / kScaleAtomRows * atoms_per_row + block / kScaleAtomBlocks;
  const std::int64_t row_in_atom = row % kScaleAtomRows;
  return atom * kScaleAtomBytes + row_in_atom % 32 * 16 + row_in_atom / 32 * 4 + block % kScaleAtomBlocks;
}

// Scales in the 128x4 layout, with the shape they came from.
struct Scales128x4 {
  std::int64_t rows = 0;
  std::int64_t blocks = 0;
  std::vector<E4m3> bytes;  // [scale_bytes_128x4(rows, blocks)]
};

inline Scales128x4 to_128x4(std::span<const E4m3> linear, std::int64_t rows, std::int64_t blocks) {
  check(scale_bytes_linear(rows, blocks) == static_cast<std::int64_t>(linear.size()),
        "scales are [rows, blocks]", linear.size(), rows, blocks);
  Scales128x4 out{.rows = rows, .blocks = blocks, .bytes = {}};
  out.bytes.resize(static_cast<std::size_t>(scale_bytes_128x4(rows, blocks)));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block)
      out.bytes[static_cast<std::size_t>(scale_offset_128x4(row, block, blocks))] =
          linear[static_cast<std::size_t>(scale_offset_linear(row, block, blocks))];
  return out;
}

// Padding is dropped unread.
inline std::vector<E4m3> to_linear(const Scales128x4& scales) {
  check(scale_bytes_128x4(scales.rows, scales.blocks) == static_cast<std::int64_t>(scales.bytes.size()),
        "the buffer is padded to 128x4", scales.bytes.size(), scales.rows, scales.blocks);
  std::vector<E4m3> linear(static_cast<std::size_t>(scale_bytes_linear(scales.rows, scales.blocks)));
  for (std::int64_t row = 0; row < scales.rows; ++row)
    for (std::int64_t block = 0; block < scales.blocks; ++block)
      linear[static_cast<std::size_t>(scale_offset_linear(row, block, scales.blocks))] =
          scales.bytes[static_cast<std::size_t>(scale_offset_128x4(row, block, scales.blocks))];
  return linear;
}

}  // namespace fourfold
