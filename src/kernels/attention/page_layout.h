// The layout of KV pages in memory: kernels/attention alone writes and reads it. A page of one KV
// head is 64 positions, and exactly what the tensor cores want to find in shared memory, so that a plain bulk
// copy of it needs no second pass:
//
//   K   rows of positions, cut into pieces of 128 bytes along the head dimension
//   V   transposed: rows of dimensions, the 64 positions along the row
//
// In both the product's K dimension runs along the row, so ldmatrix without transposition serves mma, and the
// same bytes are wgmma's K-major panels. The 16-byte chunks of a row are swizzled as wgmma asks
// (device/types.h), which also keeps ldmatrix free of bank conflicts. Rows of 64 bytes (fp8) swizzle pairs of
// rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/device/types.h"
#include "kernels/step/step_tables.h"

namespace fourfold::attention {

using step::kPageTokens;

// What a cached number is.
struct Bf16Kv {
  static constexpr int bytes = 2;
  static constexpr std::string_view name = "bf16";
};
struct E4m3Kv {  // the value is the code: scale 1, saturated at 448
  static constexpr int bytes = 1;
  static constexpr std::string_view name = "fp8";
};

// Byte offset of 16-byte chunk `chunk` of row `row` in rows of 128 or 64 bytes: any eight neighbouring rows
// have their chunk of the same number in eight different bank groups.
template <int RowBytes>
constexpr std::uint32_t chunk_offset(std::uint32_t row, std::uint32_t chunk) {
  static_assert(RowBytes == 128 || RowBytes == 64);
  if constexpr (RowBytes == 128) return device::swizzled_offset(row, chunk);
  return row * 64u + ((chunk ^ (row >> 1 & 3u)) << 4);
}

template <class KvT, int HeadDim>
struct PageLayout {
  using Kv = KvT;
  static constexpr int head_dim = HeadDim;
  static constexpr int page_bytes = kPageTokens * HeadDim * Kv::bytes;  // of K, or of V, of one KV head
  static constexpr int key_row_bytes = HeadDim * Kv::bytes < 128 ? HeadDim * Kv::bytes : 128;
  static constexpr int value_row_bytes = kPageTokens * Kv::bytes;
  static constexpr int chunk_elements = 16 / Kv::bytes;
  // A piece: the unit of copying. 64 positions x 128 bytes of K, or as many bytes of V.
  static constexpr int piece_bytes = kPageTokens * key_row_bytes;
  static constexpr int pieces = page_bytes / piece_bytes;
  static constexpr int key_piece_dims = key_row_bytes / Kv::bytes;
  static constexpr int value_piece_dims = piece_bytes / value_row_bytes;

  static_assert(HeadDim == 64 || HeadDim == 128 || HeadDim == 256);
  static_assert(pieces * value_piece_dims == HeadDim && pieces * key_piece_dims == HeadDim);

  // Where a chunk's positions stand within it. One register of an ldmatrix over fp8 holds four neighbouring
  // bytes: those must be the positions 2t, 2t + 1, 2t + 8, 2t + 9 that lane t of a k16 step wants.
  static constexpr int place_in_chunk(int position) {
    if constexpr (Kv::bytes == 2) return position & 7;
    return 4 * ((position & 7) >> 1) + 2 * (position >> 3 & 1) + (position & 1);
  }
  // Byte offsets in a page of one KV head.
  static constexpr std::uint32_t key_offset(int position, int dim) {
    const int within = dim % key_piece_dims;
    return static_cast<std::uint32_t>(dim / key_piece_dims * piece_bytes) +
           chunk_offset<key_row_bytes>(static_cast<std::uint32_t>(position),
                                       static_cast<std::uint32_t>(within / chunk_elements)) +
           static_cast<std::uint32_t>(within % chunk_elements * Kv::bytes);
  }
  static constexpr std::uint32_t value_offset(int position, int dim) {
    return chunk_offset<value_row_bytes>(static_cast<std::uint32_t>(dim),
                                         static_cast<std::uint32_t>(position / chunk_elements)) +
           static_cast<std::uint32_t>(place_in_chunk(position) * Kv::bytes);
  }
};

}  // namespace fourfold::attention
