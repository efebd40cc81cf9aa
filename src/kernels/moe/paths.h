// The mathematics a row can run: which operands, which tensor-core instruction. Types, because rows are
// types.
//
//   half_tokens   tokens are rows that a block gathers, and results 16-bit rows; else token records
//   token_bytes   of an element of such a row; 0: there are none
#pragma once

#include <string_view>
#include <type_traits>

#include "kernels/record/record.h"

namespace fourfold::moe {

// Tokens in bf16, weights decoded to bf16 in registers (or bf16 in memory already), mma.m16n8k16.
struct W4a16Mma {
  static constexpr const char* name = "w4a16-mma";
  static constexpr bool half_tokens = true;
  static constexpr int token_bytes = 2;
  static constexpr record::BitOrder bit_order = record::BitOrder::half;
};
// The same operands through the warpgroup instruction of Hopper; tokens come from shared memory.
struct W4a16Wgmma {
  static constexpr const char* name = "w4a16-wgmma";
  static constexpr bool half_tokens = true;
  static constexpr int token_bytes = 2;
  static constexpr record::BitOrder bit_order = record::BitOrder::half;
};
// As W4a16Mma, from records in the order the FP4 instruction reads: on a chip with that instruction one copy
// of the weights serves prompts in W4A4 and generated tokens in W4A16.
struct W4a16Fp4Order {
  static constexpr const char* name = "w4a16-fp4-mma";
  static constexpr bool half_tokens = true;
  static constexpr int token_bytes = 2;
  static constexpr record::BitOrder bit_order = record::BitOrder::fp4;
};
// Tokens and weights in E4M3, through Hopper's warpgroup instruction: nothing to decode. Sums of 128 columns
// at most leave the tensor core, whose own are short (base/tensor_core.h), and are added in f32.
struct W8a8Wgmma {
  static constexpr const char* name = "w8a8-wgmma";
  static constexpr bool half_tokens = true;
  static constexpr int token_bytes = 1;
  static constexpr record::BitOrder bit_order = record::BitOrder::half;
};
// The same through warp-level mma, for chips without wgmma. SM120's own sums are long, and cut at 128 columns
// all the same: one order of sums for both paths.
struct W8a8Mma {
  static constexpr const char* name = "w8a8-mma";
  static constexpr bool half_tokens = true;
  static constexpr int token_bytes = 1;
  static constexpr record::BitOrder bit_order = record::BitOrder::half;
};
// Tokens quantised to token records, the FP4 instruction of SM120 (emulated elsewhere, for proof).
struct W4a4 {
  static constexpr const char* name = "w4a4";
  static constexpr bool half_tokens = false;
  static constexpr int token_bytes = 0;
  static constexpr record::BitOrder bit_order = record::BitOrder::fp4;
};

template <class Path>
inline constexpr bool kUsesWgmma = std::is_same_v<Path, W4a16Wgmma> || std::is_same_v<Path, W8a8Wgmma>;
template <class Path>
inline constexpr bool kTakesFp8 = std::is_same_v<Path, W8a8Wgmma> || std::is_same_v<Path, W8a8Mma>;
constexpr bool takes_fp8(std::string_view path) { return path == W8a8Wgmma::name || path == W8a8Mma::name; }

// The path's name in a row's: it says how wide the weights are in memory.
template <class Path, class Format>
constexpr const char* path_name() {
  constexpr bool wgmma = std::is_same_v<Path, W4a16Wgmma>;
  if constexpr (kTakesFp8<Path>) return Path::name;
  if constexpr (std::is_same_v<Format, record::Bf16Format>) return wgmma ? "w16a16-wgmma" : "w16a16-mma";
  if constexpr (std::is_same_v<Format, record::Fp8Format>) return wgmma ? "w8a16-wgmma" : "w8a16-mma";
  return Path::name;
}

// The bit order of the records that a row of this path reads.
constexpr record::BitOrder order_of_path(std::string_view path) {
  return path == W4a4::name || path == W4a16Fp4Order::name ? record::BitOrder::fp4 : record::BitOrder::half;
}

// What is left to multiply into a complete dot product besides the global scales.
template <class Path, class Format>
inline constexpr float kDecodeFactor = Path::half_tokens ? Format::half_decode_factor : 1.0f;

}  // namespace fourfold::moe
