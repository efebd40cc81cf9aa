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

// What each byte of two words in fp4 order leaves in the half order: the order only moves bits, so the bytes'
// shares are joined by OR. Eight lookups instead of a hundred operations.
class HalfOrderTables {
 public:
  HalfOrderTables() {
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      for (int place = 0; place < 4; ++place) {
        low_[place][byte] = to_half_order(byte << (8 * place), 0);
        high_[place][byte] = to_half_order(0, byte << (8 * place));
      }
  }
  HalfWords operator()(std::uint32_t low, std::uint32_t high) const {
    HalfWords words{0, 0};
    for (int place = 0; place < 4; ++place) {
      const HalfWords of_low = low_[place][(low >> (8 * place)) & 0xFFu];
      const HalfWords of_high = high_[place][(high >> (8 * place)) & 0xFFu];
      words.a |= of_low.a | of_high.a;
      words.b |= of_low.b | of_high.b;
    }
    return words;
  }

 private:
  HalfWords low_[4][256], high_[4][256];
};

// One pair of row slots of a strip (what lane_registers() gives the GPU lane by lane), record after record:
// the rows are read front to back.
template <class Format>
void pack_slots(const PackJob& job, std::int64_t strip, int tile, int g) {
  static const HalfOrderTables half_order;
  const std::int64_t records = job.columns / kColumns;
  const int row_low = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, g);
  const int row_high = row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, g + 8);
  const std::uint8_t* low = source_of(job, g).codes + code_offset(job, row_low, 0, 0, 0);
  const std::uint8_t* high = source_of(job, g + 8).codes + code_offset(job, row_high, 0, 0, 0);
  const std::uint8_t* low_scales = source_of(job, g).scales + matrix_scale_offset<Format>(job, row_low, 0);
  const std::uint8_t* high_scales =
      source_of(job, g + 8).scales + matrix_scale_offset<Format>(job, row_high, 0);
  std::uint8_t* out = job.records + strip * records * kRecordBytes<Format>;
  for (std::int64_t record = 0; record < records; ++record, out += kRecordBytes<Format>) {
    for (int t = 0; t < 4; ++t) {
      std::uint32_t registers[4];
      for (int half = 0; half < 2; ++half) {
        const std::int64_t at = code_offset(job, 0, record, half, t);
        HalfWords words{read_word(low + at), read_word(high + at)};
        if (job.bit_order == BitOrder::half) words = half_order(words.a, words.b);
        registers[2 * half] = words.a;
        registers[2 * half + 1] = words.b;
      }
      std::memcpy(out + payload_offset(tile, 4 * g + t), registers, sizeof registers);
    }
    const std::int64_t scale = matrix_scale_offset<Format>(job, 0, record);
    std::memcpy(out + kPayloadBytes + scale_offset<Format>(tile, g), low_scales + scale,
                Format::scale_word_bytes);
    std::memcpy(out + kPayloadBytes + scale_offset<Format>(tile, g + 8), high_scales + scale,
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
  parallel_for(job.rows / kRows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip)
      for (int tile = 0; tile < 2; ++tile)
        for (int g = 0; g < 8; ++g) pack_slots<Format>(job, strip, tile, g);
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
