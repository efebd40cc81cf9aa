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

// The scale bytes a format can multiply; one comparison each, so that checking runs at memory speed.
template <class Format>
bool usable(const std::uint8_t* scales, std::int64_t count, BitOrder order) {
  int low = 0, high = 0x7E;  // NVFP4: no sign, not NaN
  if constexpr (Format::scale_word_bytes != 4) {
    low = order == BitOrder::half ? Format::smallest_scale_byte : 0;
    high = order == BitOrder::half ? Format::largest_scale_byte : 0xFE;
  }
  int outside = 0;
  for (std::int64_t i = 0; i < count; ++i) outside |= (scales[i] < low) | (scales[i] > high);
  return outside == 0;
}

// A scale that cannot be multiplied is refused here, by name.
template <class Format>
void require_scale(int byte, std::int64_t row, std::int64_t block, BitOrder order) {
  if constexpr (Format::scale_word_bytes == 4) {
    if ((byte & 0x7F) == 0x7F) fail(Code::bad_checkpoint, "scale 0x7F (NaN) at row {}, block {}", row, block);
    if (byte & 0x80)
      fail(Code::bad_checkpoint, "negative scale (byte {}) at row {}, block {}", byte, row, block);
  } else {
    if (byte == 0xFF) fail(Code::bad_checkpoint, "scale 0xFF (NaN) at row {}, block {}", row, block);
    if (order == BitOrder::half && (byte < Format::smallest_scale_byte || byte > Format::largest_scale_byte))
      fail(Code::bad_checkpoint,
           "MXFP4 scale 2^{} at row {}, block {} is outside 2^{}..2^{}: not exact in bf16", byte - 127, row,
           block, Format::smallest_scale_byte - 127, Format::largest_scale_byte - 127);
  }
}

// All scales of a matrix, before anything is written.
template <class Format>
void require_scales(const MatrixBytes& matrix, std::int64_t rows, std::int64_t columns, BitOrder order) {
  const std::int64_t per_row = columns / Format::columns_per_scale;
  parallel_for(rows, 256, [&](std::int64_t begin, std::int64_t end) {
    if (usable<Format>(matrix.scales + begin * per_row, (end - begin) * per_row, order)) return;
    for (std::int64_t i = begin * per_row; i < end * per_row; ++i)
      require_scale<Format>(matrix.scales[i], i / per_row, i % per_row, order);
  });
}

// What each byte of a word in fp4 order leaves in the half order: the order only moves bits, so the bytes'
// shares are joined by OR. Four lookups instead of fifty operations.
class HalfOrderTables {
 public:
  HalfOrderTables() {
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      for (int place = 0; place < 4; ++place) share_[place][byte] = to_half_order(byte << (8 * place));
  }
  std::uint32_t operator()(std::uint32_t word) const {
    return share_[0][word & 0xFFu] | share_[1][word >> 8 & 0xFFu] | share_[2][word >> 16 & 0xFFu] |
           share_[3][word >> 24];
  }

 private:
  std::uint32_t share_[4][256];
};

// One row slot of a strip, record after record: the row is read front to back.
template <class Format>
void pack_slot(const PackJob& job, std::int64_t strip, int tile, int slot) {
  static const HalfOrderTables half_order;
  const bool half_codes = job.bit_order == BitOrder::half;
  const std::int64_t records = job.columns / kColumns;
  const int row = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, slot);
  const std::uint8_t* codes = source_of(job, slot).codes + code_offset(job, row, 0, 0, 0);
  const std::uint8_t* scales = source_of(job, slot).scales + matrix_scale_offset<Format>(job, row, 0);
  std::uint8_t* out = job.records + strip * records * kRecordBytes<Format>;
  for (std::int64_t record = 0; record < records; ++record, out += kRecordBytes<Format>) {
    const std::uint8_t* from = scales + matrix_scale_offset<Format>(job, 0, record);
    std::uint8_t* to = out + kPayloadBytes + scale_offset<Format>(tile, slot);
    std::uint32_t scale_word = 0;
    if constexpr (Format::scale_word_bytes == 4) {
      scale_word = read_word(from);
      const std::uint32_t packed = packed_scales(job.bit_order, scale_word);
      std::memcpy(to, &packed, sizeof packed);
    } else {
      std::memcpy(to, from, Format::scale_word_bytes);
    }
    for (int half = 0; half < 2; ++half)
      for (int t = 0; t < 4; ++t) {
        std::uint32_t word = read_word(codes + code_offset(job, 0, record, half, t));
        if (half_codes) word = zeroes<Format>(scale_word, half, t) ? 0u : half_order(word);
        std::memcpy(out + payload_offset(tile, 4 * (slot & 7) + t) + 4 * (2 * half + (slot >> 3)), &word,
                    sizeof word);
      }
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
  parallel_for(job.rows / kRows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip)
      for (int tile = 0; tile < 2; ++tile)
        for (int slot = 0; slot < 16; ++slot) pack_slot<Format>(job, strip, tile, slot);
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
              const std::uint32_t packed = registers.v[2 * half + (slot >> 3)];
              const std::uint32_t word = job.bit_order == BitOrder::half ? from_half_order(packed) : packed;
              std::memcpy(codes + row * (job.columns / 2) + record * (kColumns / 2) + 16 * half + 4 * t,
                          &word, 4);
            }
          std::uint8_t* to =
              scales + row * (job.columns / Format::columns_per_scale) + record * Format::scale_word_bytes;
          const std::uint8_t* from = in + kPayloadBytes + scale_offset<Format>(tile, slot);
          for (int i = 0; i < Format::scale_word_bytes; ++i)
            to[i] = recodes_scales<Format>(job.bit_order)
                        ? static_cast<std::uint8_t>(from_half_scale(from[i]))
                        : from[i];
        }
    }
}

template void pack_records<Nvfp4>(const PackJob&);
template void pack_records<Mxfp4>(const PackJob&);
template void unpack_records<Nvfp4>(const UnpackJob&);
template void unpack_records<Mxfp4>(const UnpackJob&);

}  // namespace fourfold::record
