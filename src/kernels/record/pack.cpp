#include "kernels/record/pack.h"

#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"

namespace fourfold::record {
namespace {

std::uint32_t read_word(const std::uint8_t* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void require_shape(std::int64_t rows, std::int64_t columns, RowOrder order) {
  // Gate and up together: the row order pairs strips.
  const int multiple = order == RowOrder::gate_up ? 2 * kRows : kRows;
  if (rows <= 0 || rows % multiple != 0)
    fail(Code::invalid_request, "a packed matrix needs a multiple of {} rows; got {}", multiple, rows);
  if (columns <= 0 || columns % kColumns != 0)
    fail(Code::invalid_request, "a packed matrix needs a multiple of {} columns; got {}", kColumns, columns);
}

void require_pointer(const void* pointer, const char* what) {
  if (pointer == nullptr) fail(Code::invalid_request, "{} is a null pointer", what);
}

// A scale that cannot be multiplied is refused here, by name, before anything is written.
template <class Format>
void require_scales(const MatrixBytes& matrix, std::int64_t rows, std::int64_t columns, BitOrder order) {
  const std::int64_t per_row = columns / Format::columns_per_scale;
  for (std::int64_t i = 0; i < rows * per_row; ++i) {
    const int byte = matrix.scales[i];
    if constexpr (Format::scale_word_bytes == 4) {
      if ((byte & 0x7F) == 0x7F)
        fail(Code::bad_checkpoint, "scale 0x7F (NaN) at row {}, block {}", i / per_row, i % per_row);
      if (byte & 0x80)
        fail(Code::bad_checkpoint, "negative scale (byte {}) at row {}, block {}", byte, i / per_row,
             i % per_row);
    } else {
      if (byte == 0xFF)
        fail(Code::bad_checkpoint, "scale 0xFF (NaN) at row {}, block {}", i / per_row, i % per_row);
      if (order == BitOrder::half &&
          (byte < Format::smallest_scale_byte || byte > Format::largest_scale_byte))
        fail(Code::bad_checkpoint,
             "MXFP4 scale 2^{} at row {}, block {} is outside 2^{}..2^{}: not exact in bf16", byte - 127,
             i / per_row, i % per_row, Format::smallest_scale_byte - 127, Format::largest_scale_byte - 127);
    }
  }
}

template <class Format>
void pack_one(const PackJob& job, std::int64_t strip, std::int64_t record) {
  const std::int64_t records = job.columns / kColumns;
  std::uint8_t* out = job.records + (strip * records + record) * kRecordBytes<Format>;
  for (int tile = 0; tile < 2; ++tile)
    for (int lane = 0; lane < 32; ++lane) {
      const device::U32x4 registers =
          lane_registers(job, strip, tile, lane, [&](int slot, int row, int half, int t) {
            return read_word(source_of(job, slot).codes + code_offset(job, row, record, half, t));
          });
      std::memcpy(out + payload_offset(tile, lane), &registers, sizeof registers);
    }
  for (int tile = 0; tile < 2; ++tile)
    for (int slot = 0; slot < 16; ++slot) {
      const int row = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, slot);
      std::memcpy(out + kPayloadBytes + scale_offset<Format>(tile, slot),
                  source_of(job, slot).scales + matrix_scale_offset<Format>(job, row, record),
                  Format::scale_word_bytes);
    }
}

}  // namespace

template <class Format>
void pack_records(const PackJob& job) {
  require_shape(job.rows, job.columns, job.row_order);
  require_pointer(job.records, "the packed output");
  require_pointer(job.matrix.codes, "the codes");
  require_pointer(job.matrix.scales, "the scales");
  const bool gate_up = job.row_order == RowOrder::gate_up;
  const std::int64_t source_rows = gate_up ? job.rows / 2 : job.rows;
  if (gate_up) {
    require_pointer(job.up.codes, "the up codes");
    require_pointer(job.up.scales, "the up scales");
    require_scales<Format>(job.up, source_rows, job.columns, job.bit_order);
  }
  require_scales<Format>(job.matrix, source_rows, job.columns, job.bit_order);
  const std::int64_t records = job.columns / kColumns;
  parallel_for(job.rows / kRows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip)
      for (std::int64_t record = 0; record < records; ++record) pack_one<Format>(job, strip, record);
  });
}

template <class Format>
void unpack_records(const UnpackJob& job) {
  require_shape(job.rows, job.columns, job.row_order);
  require_pointer(job.records, "the records");
  const std::int64_t records = job.columns / kColumns;
  const bool gate_up = job.row_order == RowOrder::gate_up;
  for (std::int64_t strip = 0; strip < job.rows / kRows; ++strip)
    for (std::int64_t record = 0; record < records; ++record) {
      const std::uint8_t* in = job.records + (strip * records + record) * kRecordBytes<Format>;
      for (int tile = 0; tile < 2; ++tile)
        for (int slot = 0; slot < 16; ++slot) {
          const std::int64_t row =
              row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, slot);
          std::uint8_t* codes = gate_up && slot >= 8 ? job.up_codes : job.codes;
          std::uint8_t* scales = gate_up && slot >= 8 ? job.up_scales : job.scales;
          for (int half = 0; half < 2; ++half)
            for (int t = 0; t < 4; ++t) {
              device::U32x4 registers;
              std::memcpy(&registers, in + payload_offset(tile, 4 * (slot & 7) + t), sizeof registers);
              const std::uint32_t a = registers.v[2 * half], b = registers.v[2 * half + 1];
              const int upper = slot >> 3;
              const std::uint32_t word =
                  job.bit_order == BitOrder::half ? from_half_order({a, b}, upper) : (upper ? b : a);
              std::memcpy(codes + row * (job.columns / 2) + record * (kColumns / 2) + 16 * half + 4 * t,
                          &word, 4);
            }
          std::memcpy(
              scales + row * (job.columns / Format::columns_per_scale) + record * Format::scale_word_bytes,
              in + kPayloadBytes + scale_offset<Format>(tile, slot), Format::scale_word_bytes);
        }
    }
}

template void pack_records<Nvfp4>(const PackJob&);
template void pack_records<Mxfp4>(const PackJob&);
template void unpack_records<Nvfp4>(const UnpackJob&);
template void unpack_records<Mxfp4>(const UnpackJob&);

}  // namespace fourfold::record
