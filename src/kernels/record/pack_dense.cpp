#include "kernels/record/pack_dense.h"

#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "base/error.h"
#include "base/parallel.h"

namespace fourfold::record {
namespace {

void require_job(const void* matrix, const void* up, const void* records, std::int64_t rows,
                 std::int64_t columns, RowOrder order) {
  if (rows <= 0 || columns <= 0)
    fail(Code::invalid_request, "a dense matrix of {} rows and {} columns cannot be packed", rows, columns);
  if (order == RowOrder::gate_up && rows % 2 != 0)
    fail(Code::invalid_request, "gate and up have as many rows as each other; got {} together", rows);
  if (matrix == nullptr || records == nullptr || (order == RowOrder::gate_up && up == nullptr))
    fail(Code::invalid_request, "the {} is a null pointer",
         matrix == nullptr    ? "matrix"
         : records == nullptr ? "packed matrix"
                              : "up matrix");
}

// Eight columns of a row as bf16, zeros past its end.
device::U32x4 bf16_columns(const unsigned char* row, std::int64_t column, std::int64_t columns,
                           DenseSource source) {
  std::uint16_t values[8]{};
  const std::int64_t count = row == nullptr ? 0 : std::clamp<std::int64_t>(columns - column, 0, 8);
  if (source == DenseSource::bf16) {
    if (count > 0) std::memcpy(values, row + 2 * column, static_cast<std::size_t>(2 * count));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, row + 4 * (column + i), sizeof value);
      values[i] = to_bf16(value).bits;
    }
  }
  device::U32x4 words;
  std::memcpy(&words, values, sizeof words);
  return words;
}

device::U32x2 fp8_columns(const unsigned char* row, std::int64_t column, std::int64_t columns) {
  device::U32x2 words{};
  const std::int64_t count = row == nullptr ? 0 : std::clamp<std::int64_t>(columns - column, 0, 8);
  if (count > 0) std::memcpy(&words, row + column, static_cast<std::size_t>(count));
  return words;
}

// One pair of row slots of a strip, record after record: the rows are read front to back.
void pack_slots(const DenseJob& job, std::int64_t strip, int tile, int g) {
  const std::int64_t records = dense_records(job);
  const unsigned char* low = dense_row(job, strip, tile, g);
  const unsigned char* high = dense_row(job, strip, tile, g + 8);
  const int record_bytes = dense_record_bytes(job.source);
  std::uint8_t* out = job.records + strip * records * record_bytes;
  for (std::int64_t record = 0; record < records; ++record, out += record_bytes)
    for (int half = 0; half < 2; ++half)
      for (int t = 0; t < 4; ++t) {
        const std::int64_t column = kColumns * record + 32 * half + 8 * t;
        if (job.source == DenseSource::e4m3) {
          const device::U32x4 word =
              fp8_half(fp8_columns(low, column, job.columns), fp8_columns(high, column, job.columns));
          std::memcpy(out + fp8_offset(tile, half, 4 * g + t), &word, sizeof word);
          continue;
        }
        const device::U32x4 row_g = bf16_columns(low, column, job.columns, job.source);
        const device::U32x4 row_g8 = bf16_columns(high, column, job.columns, job.source);
        for (int step = 0; step < 2; ++step) {
          const device::U32x4 word = bf16_step(row_g, row_g8, step);
          std::memcpy(out + bf16_offset(tile, half, step, 4 * g + t), &word, sizeof word);
        }
      }
}

// NaN has no place in a product; refused here, by name, before anything is written.
void require_numbers(const DenseJob& job, const void* matrix, const char* name) {
  const std::int64_t rows = job.row_order == RowOrder::gate_up ? job.rows / 2 : job.rows;
  const std::int64_t stride = job.row_stride != 0 ? job.row_stride : job.columns;
  parallel_for(rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* codes = static_cast<const std::uint8_t*>(matrix) + row * stride;
      int found = 0;
      for (std::int64_t c = 0; c < job.columns; ++c) found |= (codes[c] & 0x7F) == 0x7F;
      for (std::int64_t c = 0; found && c < job.columns; ++c)
        if ((codes[c] & 0x7F) == 0x7F)
          fail(Code::bad_checkpoint, "E4M3 code {} (NaN) at row {}, column {} of {}", int{codes[c]}, row, c,
               name);
    }
  });
}

}  // namespace

void pack_dense(const DenseJob& job) {
  require_job(job.matrix, job.up, job.records, job.rows, job.columns, job.row_order);
  if (job.source == DenseSource::e4m3) {
    require_numbers(job, job.matrix, job.row_order == RowOrder::gate_up ? "the gate matrix" : "the matrix");
    if (job.row_order == RowOrder::gate_up) require_numbers(job, job.up, "the up matrix");
  }
  parallel_for(dense_strips(job), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip)
      for (int tile = 0; tile < 2; ++tile)
        for (int g = 0; g < 8; ++g) pack_slots(job, strip, tile, g);
  });
}

void require_for_device(const DenseJob& job) {
  require_job(job.matrix, job.up, job.records, job.rows, job.columns, job.row_order);
  const std::int64_t stride = job.row_stride != 0 ? job.row_stride : job.columns;
  if (job.columns % 8 != 0 || stride % 8 != 0)
    fail(Code::invalid_request,
         "the GPU packs rows of a multiple of eight columns, a multiple of eight apart; got {} and {}: pack "
         "on the host",
         job.columns, stride);
  const std::uintptr_t alignment = job.source == DenseSource::e4m3 ? 8 : 16;
  const auto misaligned = [&](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0;
  };
  if (misaligned(job.matrix) || (job.row_order == RowOrder::gate_up && misaligned(job.up)))
    fail(Code::invalid_request, "the GPU packs a matrix that begins at a multiple of {} bytes", alignment);
}

void unpack_dense(const DenseUnpackJob& job) {
  require_job(job.matrix, job.up, job.records, job.rows, job.columns, job.row_order);
  if (job.source == DenseSource::f32) fail(Code::invalid_request, "records hold no f32; unpack them as bf16");
  const bool gate_up = job.row_order == RowOrder::gate_up;
  const std::int64_t rows = gate_up ? job.rows / 2 : job.rows;
  const std::int64_t records = padded_columns(job.columns) / kColumns;
  const std::int64_t strips = padded_rows(job.rows, job.row_order) / kRows;
  const int bytes = source_bytes(job.source);
  for (std::int64_t strip = 0; strip < strips; ++strip)
    for (int tile = 0; tile < 2; ++tile)
      for (int slot = 0; slot < 16; ++slot) {
        const std::int64_t row =
            row_of_slot(job.row_order, BitOrder::half, static_cast<int>(strip), tile, slot);
        if (row >= rows) continue;
        auto* out = static_cast<unsigned char*>(gate_up && slot >= 8 ? job.up : job.matrix);
        for (std::int64_t column = 0; column < job.columns; ++column) {
          const std::uint8_t* in =
              job.records + (strip * records + column / kColumns) * dense_record_bytes(job.source);
          const int within = static_cast<int>(column % kColumns), half = within / 32,
                    lane = 4 * (slot & 7) + within % 32 / 8, step = within % 8 / 4, i = within % 4;
          const int at =
              job.source == DenseSource::e4m3
                  ? fp8_offset(tile, half, lane) + 8 * (slot >> 3) + 4 * step + fp8_byte(i)
                  : bf16_offset(tile, half, step, lane) + 8 * (i / 2) + 4 * (slot >> 3) + 2 * (i % 2);
          std::memcpy(out + (row * job.columns + column) * bytes, in + at, static_cast<std::size_t>(bytes));
        }
      }
}

}  // namespace fourfold::record
