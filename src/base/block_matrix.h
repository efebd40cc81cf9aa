// What NVFP4 and MXFP4 matrices have in common on the host: their shape rules and the messages when a file
// breaks them. Used by nvfp4.cpp and mxfp4.cpp alone; it holds no data, so it cannot blur the two formats'
// types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fourfold {

struct BlockShape {
  std::string_view format;
  int block_columns;
};

struct BlockSizes {
  std::int64_t rows;
  std::int64_t columns;
  std::size_t code_bytes;
  std::size_t scale_bytes;
};

// Throws bad_checkpoint unless columns are whole blocks and both byte counts follow from the shape.
void require_sizes(const BlockShape& shape, const BlockSizes& sizes);

// For quantisers: throws bad_checkpoint unless columns are whole blocks; values must be [rows, columns].
void require_values(const BlockShape& shape, std::span<const float> values, std::int64_t rows,
                    std::int64_t columns);

// Throws bad_checkpoint naming the first NaN or infinity.
void require_finite(std::span<const float> values, std::int64_t columns);

// "scale 0x7F (NaN) at row R, block B"
[[noreturn]] void fail_bad_scale(const BlockShape& shape, std::uint8_t byte, std::string_view why,
                                 std::int64_t scale_index, std::int64_t blocks_per_row);

}  // namespace fourfold
