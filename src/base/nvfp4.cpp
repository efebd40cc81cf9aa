// NVFP4 matrices on the host: quantisers, dequantiser, validation, conventions.
#include "base/nvfp4.h"

#include "base/block_matrix.h"
#include "base/check.h"
#include "base/error.h"
#include "base/parallel.h"

namespace fourfold {
namespace {

constexpr BlockShape kShape{.format = "NVFP4", .block_columns = kNvfp4BlockColumns};

// The reciprocal counts as well: each convention stores the inverse of the other.
void require_scale(const char* name, float value) {
  if (value > 0.0f && is_finite(value) && is_finite(1.0f / value)) return;
  fail_with_hint(Code::bad_checkpoint,
                 "the file is damaged, or the scale was read under the other convention's name",
                 "{} is {}; a scale must be positive and finite, and so must its reciprocal", name, value);
}

void require_input_scale(const char* name, float value) {
  if (value >= 0x1p-117f && value <= 0x1p117f) return;
  fail_with_hint(Code::bad_checkpoint, "the file is damaged, or the model was never calibrated",
                 "{} is {}; an input scale must lie between 2^-117 and 2^117", name, value);
}

Nvfp4Matrix allocate(std::int64_t rows, std::int64_t columns) {
  Nvfp4Matrix matrix{.rows = rows, .columns = columns, .codes = {}, .scales = {}, .global_scale = 1.0f};
  matrix.codes.resize(static_cast<std::size_t>(rows * columns / 2));
  matrix.scales.resize(static_cast<std::size_t>(rows * columns / kNvfp4BlockColumns));
  return matrix;
}

// Blocks never straddle rows (columns are a multiple of 16), so a matrix is one run of blocks.
template <class QuantizeBlock>
void quantize_blocks(std::span<const float> values, Nvfp4Matrix& matrix,
                     const QuantizeBlock& quantize_block) {
  const auto blocks = static_cast<std::int64_t>(matrix.scales.size());
  parallel_for(blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const auto first = static_cast<std::size_t>(block * kNvfp4BlockColumns);
      quantize_block(values.subspan(first, kNvfp4BlockColumns),
                     matrix.scales[static_cast<std::size_t>(block)],
                     std::span(matrix.codes).subspan(first / 2, kNvfp4BlockColumns / 2));
    }
  });
}

}  // namespace

std::span<const E4m3> as_e4m3(std::span<const std::byte> bytes) {
  static_assert(sizeof(E4m3) == 1 && alignof(E4m3) == 1);
  return {reinterpret_cast<const E4m3*>(bytes.data()), bytes.size()};
}

void validate(const Nvfp4View& matrix) {
  require_sizes(kShape, {matrix.rows, matrix.columns, matrix.codes.size(), matrix.scales.size()});
  require_scale("NVFP4 global scale", matrix.global_scale);
  const std::int64_t blocks = matrix.columns / kNvfp4BlockColumns;
  for (std::size_t i = 0; i < matrix.scales.size(); ++i) {
    const E4m3 scale = matrix.scales[i];
    if (scale.bits < 0x7F) continue;
    fail_bad_scale(kShape, scale.bits, is_nan(scale) ? "NaN" : "sign bit set", static_cast<std::int64_t>(i),
                   blocks);
  }
}

void dequantize_row(const Nvfp4View& matrix, std::int64_t row, std::span<float> out) {
  check(row >= 0 && row < matrix.rows, "the row exists", row, matrix.rows);
  check(static_cast<std::int64_t>(out.size()) == matrix.columns, "out holds one row", out.size(),
        matrix.columns);
  for (std::int64_t column = 0; column < matrix.columns; ++column)
    out[static_cast<std::size_t>(column)] = nvfp4_value(
        matrix.code(row, column), matrix.scale(row, column / kNvfp4BlockColumns), matrix.global_scale);
}

std::vector<float> dequantize(const Nvfp4View& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.columns));
  const auto columns = static_cast<std::size_t>(matrix.columns);
  parallel_for(matrix.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      dequantize_row(matrix, row,
                     std::span(values).subspan(static_cast<std::size_t>(row) * columns, columns));
  });
  return values;
}

Nvfp4Matrix quantize_nvfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  require_values(kShape, values, rows, columns);
  float amax = 0.0f;
  for (const float value : values) amax = widen_amax(amax, value);
  return quantize_nvfp4_weights(values, rows, columns, amax);
}

Nvfp4Matrix quantize_nvfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                   float amax) {
  require_values(kShape, values, rows, columns);
  require_finite(values, columns);
  check(amax >= 0.0f && is_finite(amax), "the shared amax of finite weights is finite", amax);
  Nvfp4Matrix matrix = allocate(rows, columns);
  matrix.global_scale = nvfp4_weight_global_scale(amax);
  quantize_blocks(
      values, matrix, [&](std::span<const float> block, E4m3& scale, std::span<std::uint8_t> codes) {
        float block_amax = 0.0f;
        for (const float value : block) block_amax = widen_amax(block_amax, value);
        scale = nvfp4_weight_scale(block_amax, matrix.global_scale);
        for (std::size_t pair = 0; pair < codes.size(); ++pair)
          codes[pair] = pack_e2m1(nvfp4_weight_code(block[2 * pair], scale, matrix.global_scale),
                                  nvfp4_weight_code(block[2 * pair + 1], scale, matrix.global_scale));
      });
  return matrix;
}

Nvfp4Matrix quantize_nvfp4_activations(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                       Nvfp4InputScale input_scale) {
  require_values(kShape, values, rows, columns);
  Nvfp4Matrix matrix = allocate(rows, columns);
  matrix.global_scale = input_scale.scale;
  quantize_blocks(values, matrix,
                  [&](std::span<const float> block, E4m3& scale, std::span<std::uint8_t> codes) {
                    float amax = 0.0f;
                    for (const float value : block) amax = widen_amax(amax, value);
                    scale = nvfp4_activation_scale(amax, input_scale.inverse);
                    const float multiplier = nvfp4_activation_multiplier(scale, input_scale.inverse);
                    for (std::size_t pair = 0; pair < codes.size(); ++pair)
                      codes[pair] = pack_e2m1(nvfp4_activation_code(block[2 * pair], multiplier),
                                              nvfp4_activation_code(block[2 * pair + 1], multiplier));
                  });
  return matrix;
}

ModelOptScale to_model_opt(CompressedTensorsScale scale) {
  require_scale("weight_global_scale", scale.weight_global_scale);
  return {1.0f / scale.weight_global_scale};
}

CompressedTensorsScale to_compressed_tensors(ModelOptScale scale) {
  require_scale("weight_scale_2", scale.weight_scale_2);
  return {1.0f / scale.weight_scale_2};
}

float global_scale(ModelOptScale scale) {
  require_scale("weight_scale_2", scale.weight_scale_2);
  return scale.weight_scale_2;
}

float global_scale(CompressedTensorsScale scale) { return to_model_opt(scale).weight_scale_2; }

Nvfp4InputScale nvfp4_input_scale(ModelOptInputScale scale) {
  require_input_scale("input_scale", scale.input_scale);
  return {scale.input_scale, 1.0f / scale.input_scale};
}

Nvfp4InputScale nvfp4_input_scale(CompressedTensorsInputScale scale) {
  require_input_scale("input_global_scale", scale.input_global_scale);
  return {1.0f / scale.input_global_scale, scale.input_global_scale};
}

}  // namespace fourfold
