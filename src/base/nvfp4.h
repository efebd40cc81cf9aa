// NVFP4: E2M1 codes, one E4M3 scale per 16 columns, one f32 scale per matrix; value = code * scale *
// global_scale. Owns the matrix types, the quantisers and the dequantiser, what a sound checkpoint matrix is,
// and the two naming conventions checkpoints use for the global scale (one is the inverse of the other).
// MXFP4 is another set of types in mxfp4.h; nothing converts between them.
//
// The constexpr functions below are the whole arithmetic: kernels and host call the same ones. Every
// operation is one f32 operation rounded to nearest even; kernels must not be built with --use_fast_math
// (flushed subnormals, approximate division).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/float_bits.h"

namespace fourfold {

inline constexpr int kNvfp4BlockColumns = 16;

// code * scale has at most six significant bits, so only the last product rounds.
constexpr float nvfp4_value(E2m1 code, E4m3 scale, float global_scale) {
  return to_float(code) * to_float(scale) * global_scale;
}

// Weights, with a static amax. These are ModelOpt's operations in ModelOpt's order, with a floor of our own
// under the global scale; a weight of -0 keeps its sign.

// amax / (6 * 448), so that the largest weight is 6 times the largest block scale. An all-zero matrix gets 1.
// Never below the smallest normal f32: a subnormal scale would lose bits, and become 0 on hardware that
// flushes it.
constexpr float nvfp4_weight_global_scale(float amax) {
  if (amax == 0.0f) return 1.0f;
  const float scale = amax / (kE2m1Largest * kE4m3Largest);
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

// A block whose ratio is zero (all its weights are zero) gets 1; otherwise the scale is kept off zero.
constexpr E4m3 nvfp4_weight_scale(float block_amax, float global_scale) {
  const float ratio = block_amax / (kE2m1Largest * global_scale);
  if (ratio == 0.0f) return to_e4m3(1.0f);
  return to_e4m3(ratio < kE4m3Smallest ? kE4m3Smallest : ratio);
}

constexpr E2m1 nvfp4_weight_code(float weight, E4m3 scale, float global_scale) {
  return to_e2m1(weight / (to_float(scale) * global_scale));
}

// Activations, with a given input scale. The order of operations is a contract with the kernels:
//
// Per tensor, once:  inverse = 1 / input scale, or the stored inverse itself
//                    c       = inverse * (1/6 in f32, 0x3E2AAAAB)
// Per block of 16:   amax    = maximum of |x|, NaN ignored, 0 if nothing else is there
//                    sf      = e4m3(amax * c)                         nearest even, saturating at 448
//                    m       = (1 / float(sf)) * inverse              two roundings; 0 when sf is 0
// Per element:       code    = e2m1(x * m)                            0 when m is 0
//
// A NaN element becomes +6 of its block and does not move the block's scale; an infinity saturates: its block
// gets sf = 448 and the element +-6.

constexpr E4m3 nvfp4_activation_scale(float amax, float inverse_input_scale) {
  return to_e4m3(amax * (inverse_input_scale * (1.0f / kE2m1Largest)));
}

// In a kernel 1.0f / x is __frcp_rn(x): both are the correctly rounded reciprocal.
constexpr float nvfp4_activation_multiplier(E4m3 scale, float inverse_input_scale) {
  return scale.bits == 0 ? 0.0f : (1.0f / to_float(scale)) * inverse_input_scale;
}

// A mask, not a branch: it is the same for the sixteen elements of a block.
constexpr E2m1 nvfp4_activation_code(float value, float multiplier) {
  const unsigned kept_bits = multiplier == 0.0f ? 0u : 15u;
  return {static_cast<std::uint8_t>(to_e2m1(value * multiplier).bits & kept_bits)};
}

// A matrix in memory the caller owns, such as a mapped checkpoint.
struct Nvfp4View {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const std::uint8_t> codes;  // [rows, columns / 2], even column in the low nibble
  std::span<const E4m3> scales;         // [rows, columns / 16], linear
  float global_scale = 1.0f;

  E2m1 code(std::int64_t row, std::int64_t column) const {
    const std::uint8_t pair = codes[static_cast<std::size_t>(row * (columns / 2) + column / 2)];
    return column % 2 ? e2m1_odd(pair) : e2m1_even(pair);
  }
  E4m3 scale(std::int64_t row, std::int64_t block) const {
    return scales[static_cast<std::size_t>(row * (columns / kNvfp4BlockColumns) + block)];
  }
};

struct Nvfp4Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> codes;  // [rows, columns / 2], even column in the low nibble
  std::vector<E4m3> scales;         // [rows, columns / 16], linear
  float global_scale = 1.0f;

  Nvfp4View view() const { return {rows, columns, codes, scales, global_scale}; }
};

// Raw checkpoint bytes as scales. The type says what they are from here on.
std::span<const E4m3> as_e4m3(std::span<const std::byte> bytes);

// Throws bad_checkpoint when sizes disagree, the global scale is not a positive number, or a block scale is
// NaN (0x7F, 0xFF) or has its sign bit set; names the row, the block and the byte.
void validate(const Nvfp4View& matrix);

// [rows, columns] in f32.
std::vector<float> dequantize(const Nvfp4View& matrix);
void dequantize_row(const Nvfp4View& matrix, std::int64_t row, std::span<float> out);

// values: [rows, columns]. NaN and infinite weights are refused with their position. amax is the matrix's
// own, or a larger one shared by matrices that must have equal global scales (gate and up of one expert);
// larger weights saturate.
Nvfp4Matrix quantize_nvfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns);
Nvfp4Matrix quantize_nvfp4_weights(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                   float amax);

// The two conventions for the global scale of weights, and below of inputs.
struct ModelOptScale {
  float weight_scale_2;  // amax / (6 * 448): multiplies
};
struct CompressedTensorsScale {
  float weight_global_scale;  // 6 * 448 / amax: divides
};

// All throw bad_checkpoint on a value that is zero, negative, NaN or infinite, or whose reciprocal is.
ModelOptScale to_model_opt(CompressedTensorsScale scale);
CompressedTensorsScale to_compressed_tensors(ModelOptScale scale);
float global_scale(ModelOptScale scale);
float global_scale(CompressedTensorsScale scale);

struct ModelOptInputScale {
  float input_scale;  // amax / (6 * 448)
};
struct CompressedTensorsInputScale {
  float input_global_scale;  // 6 * 448 / amax
};

// Both directions of the input scale, so that no caller divides: the quantiser multiplies by inverse, the
// epilogue by scale. The one the checkpoint stores is kept as stored.
struct Nvfp4InputScale {
  float scale;
  float inverse;
  friend constexpr bool operator==(const Nvfp4InputScale&, const Nvfp4InputScale&) = default;
};

// Refuses what lies outside 2^-117..2^117: within, the multiplier of every block scale is a normal number (an
// infinite one would turn zeros into NaN).
Nvfp4InputScale nvfp4_input_scale(ModelOptInputScale scale);
Nvfp4InputScale nvfp4_input_scale(CompressedTensorsInputScale scale);

// values: [rows, columns]; the result's global scale is the input scale.
Nvfp4Matrix quantize_nvfp4_activations(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                                       Nvfp4InputScale input_scale);

}  // namespace fourfold
