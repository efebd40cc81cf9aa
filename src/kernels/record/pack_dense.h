// From a dense matrix, row by row in bf16, f32 or E4M3, to records without block scales, and back. Rows and
// columns that do not fill a record are padded with zeros. The arithmetic of one lane is here once;
// pack_dense.cpp runs it on all cores of the host, pack_dense_kernel.h on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/types.h"
#include "kernels/record/record.h"

namespace fourfold::record {

// What the matrix holds; it decides the records. f32 is rounded to bf16, nearest even.
enum class DenseSource : std::uint8_t { bf16, f32, e4m3 };

constexpr int source_bytes(DenseSource source) {
  return source == DenseSource::f32 ? 4 : source == DenseSource::bf16 ? 2 : 1;
}

// One plain matrix, or the gate and up matrices of an expert interleaved.
struct DenseJob {
  const void* matrix;     // [rows, columns]; gate_up: gate, half the rows
  const void* up;         // gate_up only
  std::uint8_t* records;  // [strips][records of a row], dense_bytes() of them
  std::int64_t rows;      // plain rows, or gate rows + up rows
  std::int64_t columns;
  std::int64_t row_stride;  // elements between two rows; 0: columns
  DenseSource source;
  RowOrder row_order;
};

constexpr std::int64_t dense_strips(const DenseJob& job) {
  return padded_rows(job.rows, job.row_order) / kRows;
}
constexpr std::int64_t dense_records(const DenseJob& job) { return padded_columns(job.columns) / kColumns; }
constexpr int dense_record_bytes(DenseSource source) {
  return source == DenseSource::e4m3 ? kRecordBytes<Fp8Format> : kRecordBytes<Bf16Format>;
}
constexpr std::size_t dense_bytes(const DenseJob& job) {
  return static_cast<std::size_t>(dense_strips(job) * dense_records(job) * dense_record_bytes(job.source));
}

// Element of the named matrix where a row begins; nullptr for a row of padding.
constexpr const unsigned char* dense_row(const DenseJob& job, std::int64_t strip, int tile, int slot) {
  const bool gate_up = job.row_order == RowOrder::gate_up;
  const std::int64_t row = row_of_slot(job.row_order, BitOrder::half, static_cast<int>(strip), tile, slot);
  if (row >= (gate_up ? job.rows / 2 : job.rows)) return nullptr;
  const std::int64_t stride = job.row_stride != 0 ? job.row_stride : job.columns;
  return static_cast<const unsigned char*>(gate_up && slot >= 8 ? job.up : job.matrix) +
         row * stride * source_bytes(job.source);
}

// Four codes of a row in the byte order of fp8 records, and back.
constexpr std::uint32_t to_fp8_order(std::uint32_t codes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= ((codes >> (8 * i)) & 0xFFu) << (8 * fp8_byte(i));
  return word;
}
constexpr std::uint32_t from_fp8_order(std::uint32_t word) {
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) codes |= ((word >> (8 * fp8_byte(i))) & 0xFFu) << (8 * i);
  return codes;
}

// The 16 bytes of k16 step `step` (0, 1) made of eight columns of row slot g and the same of slot g + 8.
constexpr device::U32x4 bf16_step(const device::U32x4& row_g, const device::U32x4& row_g8, int step) {
  return {{row_g.v[2 * step], row_g8.v[2 * step], row_g.v[2 * step + 1], row_g8.v[2 * step + 1]}};
}
constexpr device::U32x4 fp8_half(const device::U32x2& row_g, const device::U32x2& row_g8) {
  return {{to_fp8_order(row_g.v[0]), to_fp8_order(row_g.v[1]), to_fp8_order(row_g8.v[0]),
           to_fp8_order(row_g8.v[1])}};
}

inline constexpr int kPackDenseThreads = 256;  // of the GPU's kernel
inline constexpr const char* kPackDenseRow = "pack_dense";

// Packs on the host, on all cores. Throws invalid_request for sizes or pointers that make no matrix,
// bad_checkpoint for an E4M3 code that is NaN, with its row and column.
void pack_dense(const DenseJob& job);
// What the GPU's kernel needs besides: rows that begin at multiples of 16 bytes (E4M3: of 8), columns in
// eights.
void require_for_device(const DenseJob& job);

// The inverse, without the padding: codes (E4M3) or bf16 rows, contiguous. `source` is bf16 or e4m3.
struct DenseUnpackJob {
  const std::uint8_t* records;
  void* matrix;
  void* up;  // gate_up only
  std::int64_t rows;
  std::int64_t columns;
  DenseSource source;
  RowOrder row_order;
};
void unpack_dense(const DenseUnpackJob& job);

}  // namespace fourfold::record
