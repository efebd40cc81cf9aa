// Shape rules of block-scaled matrices and their messages.
#include "base/block_matrix.h"

#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/float_bits.h"

namespace fourfold {
namespace {

void require_whole_blocks(const BlockShape& shape, std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 0)
    fail(Code::bad_checkpoint, "{} matrix has {} rows and {} columns; neither may be negative", shape.format,
         rows, columns);
  if (columns % shape.block_columns != 0)
    fail(Code::bad_checkpoint, "{} matrix has {} columns; its blocks need a multiple of {}", shape.format,
         columns, shape.block_columns);
}

// Header numbers are not trusted: their product may not fit.
void require_count(const BlockShape& shape, std::string_view what, std::size_t have, std::int64_t rows,
                   std::int64_t per_row) {
  std::int64_t want = 0;
  if (!__builtin_mul_overflow(rows, per_row, &want) && static_cast<std::uint64_t>(want) == have) return;
  fail(Code::bad_checkpoint, "{} matrix has {} bytes of {}; {} rows need {} bytes each", shape.format, have,
       what, rows, per_row);
}

std::string hex_byte(std::uint8_t byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'0', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

void require_sizes(const BlockShape& shape, const BlockSizes& sizes) {
  require_whole_blocks(shape, sizes.rows, sizes.columns);
  require_count(shape, "codes", sizes.code_bytes, sizes.rows, sizes.columns / 2);
  require_count(shape, "scales", sizes.scale_bytes, sizes.rows, sizes.columns / shape.block_columns);
}

void require_values(const BlockShape& shape, std::span<const float> values, std::int64_t rows,
                    std::int64_t columns) {
  require_whole_blocks(shape, rows, columns);
  std::int64_t count = 0;
  const bool overflow = __builtin_mul_overflow(rows, columns, &count);
  check(!overflow && static_cast<std::uint64_t>(count) == values.size(), "values are [rows, columns]",
        values.size(), rows, columns);
}

void require_finite(std::span<const float> values, std::int64_t columns) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_finite(values[i])) continue;
    const auto index = static_cast<std::int64_t>(i);
    fail(Code::bad_checkpoint, "weight at row {}, column {} is {}; only finite weights can be quantised",
         index / columns, index % columns, values[i]);
  }
}

void fail_bad_scale(const BlockShape& shape, std::uint8_t byte, std::string_view why,
                    std::int64_t scale_index, std::int64_t blocks_per_row) {
  fail_with_hint(Code::bad_checkpoint, "the file is damaged, or its scales are of another format",
                 "{} scale {} ({}) at row {}, block {}", shape.format, hex_byte(byte), why,
                 scale_index / blocks_per_row, scale_index % blocks_per_row);
}

}  // namespace fourfold
