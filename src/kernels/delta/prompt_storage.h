// Shared memory of the prompt's first kernel.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"

namespace fourfold::delta {

inline constexpr int kPrepareThreads = 256;
inline constexpr int kPrepareWarps = kPrepareThreads / 32;
inline constexpr int kValuesPerKeyMax = kPrepareWarps;  // a warp computes the gates of a value head
inline constexpr int kSystemStride = kBlockRows + 8;
inline constexpr int kSolveWarps = 2;  // the others make values meanwhile

constexpr int larger(int a, int b) { return a > b ? a : b; }

template <int D>
struct PrepareStorage {
  static constexpr int kRowStride = D + kTilePad;
  // Queries as rows, then the system I + A of a head; keys as rows, then its inverse.
  alignas(16) unsigned char first[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kSystemStride)];
  alignas(16) unsigned char second[larger(2 * kBlockRows * kRowStride, 4 * kBlockRows * kBlockRows)];
  std::uint16_t key_columns[D][kBlockStride];
  std::uint16_t value_columns[D][kBlockStride];
  // T scaled for the values, and for what the state knows; apart by half the banks, as both are written at
  // once.
  static constexpr int kInverse = kBlockRows * kBlockStride + 32;
  std::uint16_t inverse[2][kInverse];
  float decay[kValuesPerKeyMax][kBlockRows];  // G
  float beta[kValuesPerKeyMax][kBlockRows];
  alignas(16) float squares[2][kBlockRows];  // sums of halves of a row; then the row's factor

  FOURFOLD_DEVICE std::uint16_t* queries() { return reinterpret_cast<std::uint16_t*>(first); }
  FOURFOLD_DEVICE std::uint16_t* keys() { return reinterpret_cast<std::uint16_t*>(second); }
  FOURFOLD_DEVICE float* system() { return reinterpret_cast<float*>(first); }
  FOURFOLD_DEVICE float* solution() { return reinterpret_cast<float*>(second); }
};

}  // namespace fourfold::delta
