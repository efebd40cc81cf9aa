// From a checkpoint's matrix (codes row by row, even column in the low nibble; scales linear) to records and
// back. The arithmetic of one lane is here once; pack.cpp runs it on all cores of the host, pack_kernel.h on
// the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

// The four registers of `lane` for one tile. read(slot, row, half, t) gives the word of eight codes.
template <class Read>
constexpr device::U32x4 lane_registers(const PackJob& job, std::int64_t strip, int tile, int lane,
                                       const Read& read) {
  const int g = lane >> 2, t = lane & 3;
  const int row_low = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, g);
  const int row_high = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, g + 8);
  device::U32x4 out{};
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t low = read(g, row_low, half, t), high = read(g + 8, row_high, half, t);
    if (job.bit_order == BitOrder::half) {
      const HalfWords words = to_half_order(low, high);
      out.v[2 * half] = words.a;
      out.v[2 * half + 1] = words.b;
    } else {
      out.v[2 * half] = low;
      out.v[2 * half + 1] = high;
    }
  }
  return out;
}

inline constexpr int kPackThreads = 256;  // of the GPU's pack kernel

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
