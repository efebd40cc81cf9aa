// What a matrix reads: rows of activations in the form its kernel wants, made once and read by every matrix
// with the same input.
//
// An FP4 matrix multiplies integers. Doubled, its codes are integers from -12 to 12; an input block of 16
// becomes integers times one scale, in one to three planes of eight bits:
//
//   one     FP4 inputs, which are doubled codes themselves: exact
//   two     bf16 inputs as 16 bits with a power of two for scale: elements down to 1/128 of the block's
//           largest are exact, smaller ones are off by at most 2^-15 of it, no more than the rounding to bf16
//           costs the largest
//   three   f32 inputs as 23 bits: off by at most 2^-22 of the block's largest
//
// So a block's dot product is exact, and a row of weights adds one f32 product a block. Everything else about
// these numbers (and so every bit of the result) is the same on all instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/nvfp4.h"

namespace fourfold::cpu {

enum class InputForm {
  floats,          // f32, as they are
  floats_bf16,     // f32 after rounding to bf16
  one_plane,       // NVFP4 with an input scale
  one_plane_bf16,  // the same after rounding to bf16
  two_planes,      // bf16
  three_planes,    // f32
  bf16_tiles       // bf16 as 16 bits, columns padded to 32: what the tile unit reads
};

constexpr int plane_count(InputForm form) {
  return form == InputForm::one_plane || form == InputForm::one_plane_bf16 ? 1
         : form == InputForm::two_planes                                   ? 2
         : form == InputForm::three_planes                                 ? 3
                                                                           : 0;
}

// A block of 16 in `planes` planes: the planes, highest first, then scale and two sums.
//   scale      of the lowest plane, halved because codes are doubled (twice where inputs are codes too), and
//              times 2^8, which the E4M3 scales lack as kernels read them
//   minus_sum  -12 times the sum of the integers of all planes but the lowest of three; and minus_low of that
//              one. Kernels whose codes are 12 too large begin with them.
struct BlockTail {
  float scale;
  std::int32_t minus_sum;
  std::int32_t minus_low;
  std::int32_t unused;
};
constexpr std::int64_t block_bytes(int planes) { return 16 * planes + std::int64_t{sizeof(BlockTail)}; }
inline constexpr std::int32_t kCodeBias = 12;

// Smaller inputs are zero to tiles. Products with FP4 and FP8 weights (2^-18 and more) and their sums are
// then whole multiples of 2^-111 and never the subnormal numbers that the tile unit flushes to zero.
inline constexpr float kLeastTileInput = 0x1p-80f;

// Bytes of one row; a multiple of 64, so that rows of different threads share no cache line.
constexpr std::int64_t row_bytes(InputForm form, std::int64_t columns) {
  const std::int64_t blocks = (columns + 15) / 16;
  const int planes = plane_count(form);
  if (form == InputForm::bf16_tiles) return (blocks + 1) / 2 * 64;
  const std::int64_t bytes = planes == 0 ? 64 * blocks : block_bytes(planes) * blocks;
  return (bytes + 63) / 64 * 64;
}

// One row. input_scale is read for one plane alone. Columns are padded with zeros.
//
// A block with an infinity or a NaN gets the scale NaN (except in one plane, where NVFP4's own rules hold),
// so that it shows in every result.
void make_input_row(InputForm form, const float* values, std::int64_t columns,
                    const Nvfp4InputScale& input_scale, std::uint8_t* out);

}  // namespace fourfold::cpu
