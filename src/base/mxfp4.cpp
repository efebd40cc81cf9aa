// MXFP4 matrices on the host: quantiser, dequantiser, validation.
#include "base/mxfp4.h"

#include "base/block_matrix.h"
#include "base/check.h"
#include "base/parallel.h"

namespace fourfold {
namespace {

constexpr BlockShape kShape{.format = "MXFP4", .block_columns = kMxfp4BlockColumns};

void quantize_block(std::span<const float> block, Ue8m0& scale, std::span<std::uint8_t> codes) {
  float amax = 0.0f;
  for (const float value : block) amax = widen_amax(amax, value);
  scale = mxfp4_block_scale(amax);
  for (std::size_t pair = 0; pair < codes.size(); ++pair)
    codes[pair] = pack_e2m1(mxfp4_code(block[2 * pair], scale), mxfp4_code(block[2 * pair + 1], scale));
}

}  // namespace

std::span<const Ue8m0> as_ue8m0(std::span<const std::byte> bytes) {
  static_assert(sizeof(Ue8m0) == 1 && alignof(Ue8m0) == 1);
  return {reinterpret_cast<const Ue8m0*>(bytes.data()), bytes.size()};
}

void validate(const Mxfp4View& matrix) {
  require_sizes(kShape, {matrix.rows, matrix.columns, matrix.codes.size(), matrix.scales.size()});
  const std::int64_t blocks = matrix.columns / kMxfp4BlockColumns;
  for (std::size_t i = 0; i < matrix.scales.size(); ++i)
    if (is_nan(matrix.scales[i]))
      fail_bad_scale(kShape, matrix.scales[i].bits, "NaN", static_cast<std::int64_t>(i), blocks);
}

void dequantize_row(const Mxfp4View& matrix, std::int64_t row, std::span<float> out) {
  check(row >= 0 && row < matrix.rows, "the row exists", row, matrix.rows);
  check(static_cast<std::int64_t>(out.size()) == matrix.columns, "out holds one row", out.size(),
        matrix.columns);
  for (std::int64_t column = 0; column < matrix.columns; ++column)
    out[static_cast<std::size_t>(column)] =
        mxfp4_value(matrix.code(row, column), matrix.scale(row, column / kMxfp4BlockColumns));
}

std::vector<float> dequantize(const Mxfp4View& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.columns));
  const auto columns = static_cast<std::size_t>(matrix.columns);
  parallel_for(matrix.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      dequantize_row(matrix, row,
                     std::span(values).subspan(static_cast<std::size_t>(row) * columns, columns));
  });
  return values;
}

Mxfp4Matrix quantize_mxfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  require_values(kShape, values, rows, columns);
  require_finite(values, columns);
  Mxfp4Matrix matrix{.rows = rows, .columns = columns, .codes = {}, .scales = {}};
  matrix.codes.resize(values.size() / 2);
  matrix.scales.resize(values.size() / kMxfp4BlockColumns);
  parallel_for(static_cast<std::int64_t>(matrix.scales.size()), 2048,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   const auto first = static_cast<std::size_t>(block * kMxfp4BlockColumns);
                   quantize_block(values.subspan(first, kMxfp4BlockColumns),
                                  matrix.scales[static_cast<std::size_t>(block)],
                                  std::span(matrix.codes).subspan(first / 2, kMxfp4BlockColumns / 2));
                 }
               });
  return matrix;
}

}  // namespace fourfold
