// From a checkpoint's matrix (codes row by row, even column in the low nibble; scales linear) to records and
// back. The arithmetic of one lane is here once; pack.cpp runs it on all cores of the host, pack_kernel.h on
// the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/device/types.h"
#include "kernels/record/bit_order.h"
#include "kernels/record/record.h"

namespace fourfold::record {

// One matrix as a checkpoint stores it.
struct MatrixBytes {
  const std::uint8_t* codes;   // [rows, columns / 2]
  const std::uint8_t* scales;  // NVFP4: E4M3 [rows, columns / 16]; MXFP4: UE8M0 [rows, columns / 32]
};

// What to pack: one plain matrix, or the gate and up matrices of an expert interleaved.
struct PackJob {
  MatrixBytes matrix;     // plain, or gate
  MatrixBytes up;         // gate_up only
  std::uint8_t* records;  // [strips][columns / 64]
  std::int64_t rows;      // of the packed matrix: plain rows, or gate rows + up rows
  std::int64_t columns;
  RowOrder row_order;
  BitOrder bit_order;
};

constexpr const MatrixBytes& source_of(const PackJob& job, int slot) {
  return job.row_order == RowOrder::gate_up && slot >= 8 ? job.up : job.matrix;
}
constexpr std::int64_t code_offset(const PackJob& job, std::int64_t row, std::int64_t record, int half,
                                   int t) {
  return row * (job.columns / 2) + record * (kColumns / 2) + 16 * half + 4 * t;
}
template <class Format>
constexpr std::int64_t matrix_scale_offset(const PackJob& job, std::int64_t row, std::int64_t record) {
  return row * (job.columns / Format::columns_per_scale) + record * Format::scale_word_bytes;
}

// NVFP4 in half order: E4M3 scales are re-coded, and codes whose scale is zero are zero (bit_order.h).
template <class Format>
constexpr bool recodes_scales(BitOrder order) {
  return order == BitOrder::half && std::is_same_v<Format, Nvfp4>;
}
// Whether the word of codes at (half, t) has a scale of zero; `scales` are the record's four of the row.
template <class Format>
constexpr bool zeroes(std::uint32_t scales, int half, int t) {
  return std::is_same_v<Format, Nvfp4> && (scales >> (16 * half + 8 * (t >> 1)) & 0x7Fu) == 0u;
}
constexpr std::uint32_t packed_scales(BitOrder order, std::uint32_t scales) {
  return order == BitOrder::half ? to_half_scales(scales) : scales;
}

inline constexpr int kPackThreads = 256;  // of the GPU's pack kernel
// Names of its rows.
inline constexpr const char* kPackNvfp4Row = "pack nvfp4";
inline constexpr const char* kPackMxfp4Row = "pack mxfp4";

// Packs on the host, on all cores. Throws invalid_request when rows are not a multiple of 32 (gate_up: of 16
// neurons each), columns not of 64, a pointer is missing, or an NVFP4 scale is NaN; MXFP4 scales
// outside 57..190 are refused in half order, where they would not be exact.
template <class Format>
void pack_records(const PackJob& job);

// The inverse: writes codes and scales of the matrix (or of gate and up) from the records.
struct UnpackJob {
  const std::uint8_t* records;
  std::uint8_t* codes;
  std::uint8_t* scales;
  std::uint8_t* up_codes;  // gate_up only
  std::uint8_t* up_scales;
  std::int64_t rows;
  std::int64_t columns;
  RowOrder row_order;
  BitOrder bit_order;
};
template <class Format>
void unpack_records(const UnpackJob& job);

}  // namespace fourfold::record
