// Checkpoint rows into panels.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "kernels/cpu/packed_matrix.h"

namespace fourfold::cpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

PackedMatrix allocate(WeightFormat format, std::int64_t rows, std::int64_t columns) {
  PackedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.padded_columns = round_up(columns, kPanelColumns);
  const std::int64_t elements = kPanelRows * matrix.padded_columns;
  switch (format) {
    case WeightFormat::nvfp4: matrix.panel_bytes = elements / 2 + elements / kNvfp4BlockColumns; break;
    case WeightFormat::bf16: matrix.panel_bytes = 2 * elements; break;
    case WeightFormat::fp8: matrix.panel_bytes = elements; break;
    case WeightFormat::f32: matrix.panel_bytes = 4 * elements; break;
    case WeightFormat::mxfp4: fail(Code::internal, "the CPU packs no {} panels", format_name(format));
  }
  matrix.panel_bytes = round_up(matrix.panel_bytes, 64);
  matrix.panels = AlignedBytes(static_cast<std::size_t>(matrix.panel_bytes * matrix.panel_count()));
  return matrix;
}

// Calls pack(panel, row in panel, row) for the rows of each panel, the panel cleared before.
template <class Pack>
void for_each_panel_row(PackedMatrix& matrix, const Pack& pack) {
  for (std::int64_t panel = 0; panel < matrix.panel_count(); ++panel) {
    std::uint8_t* to = matrix.panels.data() + panel * matrix.panel_bytes;
    std::memset(to, 0, static_cast<std::size_t>(matrix.panel_bytes));
    for (std::int64_t row = 0; row < kPanelRows && panel * kPanelRows + row < matrix.rows; ++row)
      pack(to, row, panel * kPanelRows + row);
  }
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  constexpr std::size_t line = 64, large_page = std::size_t{2} << 20;
  const std::size_t alignment = size >= 2 * large_page ? large_page : line;
  const std::size_t whole = (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  bytes_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, whole)));
  if (!bytes_)
    fail_with_hint(Code::out_of_memory, "use a smaller model, fewer slots or fewer pages",
                   "{} bytes cannot be allocated", size);
#if defined(MADV_HUGEPAGE)
  // Speed only: a kernel without large pages may say no.
  if (alignment == large_page) static_cast<void>(::madvise(bytes_.get(), whole, MADV_HUGEPAGE));
#endif
}

void AlignedBytes::Free::operator()(std::uint8_t* bytes) const { std::free(bytes); }

PackedMatrix pack_nvfp4(const Nvfp4View& stored, std::int64_t rows, std::int64_t columns,
                        const StoredRow& stored_row, StoredColumns part) {
  PackedMatrix matrix = allocate(WeightFormat::nvfp4, rows, columns);
  matrix.global_scale = stored.global_scale;
  const std::int64_t blocks = columns / kNvfp4BlockColumns;
  const std::int64_t stored_blocks = stored.columns / kNvfp4BlockColumns;
  for_each_panel_row(matrix, [&](std::uint8_t* panel, std::int64_t row, std::int64_t matrix_row) {
    const std::int64_t from_row = stored_row(matrix_row);
    const std::uint8_t* from = stored.codes.data() + (from_row * stored.columns + part.first) / 2;
    const E4m3* scales = stored.scales.data() + from_row * stored_blocks + part.first / kNvfp4BlockColumns;
    std::uint8_t* to_scales = panel + blocks * 128;
    for (std::int64_t block = 0; block < blocks; ++block) {
      to_scales[block * kPanelRows + row] = scales[block].bits;
      for (int half = 0; half < 2; ++half) {
        const std::uint8_t* pairs = from + block * 8 + half * 4;  // columns 0 1, 2 3, 4 5, 6 7
        std::uint8_t* to = panel + block * 128 + half * 64 + row * 4;
        to[0] = static_cast<std::uint8_t>((pairs[0] & 15) | (pairs[2] << 4));
        to[1] = static_cast<std::uint8_t>((pairs[0] >> 4) | (pairs[2] & 0xF0));
        to[2] = static_cast<std::uint8_t>((pairs[1] & 15) | (pairs[3] << 4));
        to[3] = static_cast<std::uint8_t>((pairs[1] >> 4) | (pairs[3] & 0xF0));
      }
    }
  });
  return matrix;
}

PackedMatrix pack_bf16(std::span<const Bf16> stored, std::int64_t rows, std::int64_t columns,
                       const StoredRow& stored_row, StoredColumns part) {
  PackedMatrix matrix = allocate(WeightFormat::bf16, rows, columns);
  const std::int64_t stored_columns = part.whole != 0 ? part.whole : columns;
  for_each_panel_row(matrix, [&](std::uint8_t* panel, std::int64_t row, std::int64_t matrix_row) {
    const Bf16* from = stored.data() + stored_row(matrix_row) * stored_columns + part.first;
    for (std::int64_t k = 0; k < columns; ++k)
      std::memcpy(panel + (k / 2 * kPanelRows + row) * 4 + k % 2 * 2, from + k, 2);
  });
  return matrix;
}

PackedMatrix pack_e4m3(std::span<const E4m3> stored, std::int64_t rows, std::int64_t columns,
                       const StoredRow& stored_row, std::int64_t segment_columns,
                       const std::function<float(std::int64_t stored_row, std::int64_t segment)>& scale_of,
                       StoredColumns part) {
  check(segment_columns > 0 && segment_columns % kPanelColumns == 0, "segments are whole steps",
        segment_columns);
  PackedMatrix matrix = allocate(WeightFormat::fp8, rows, columns);
  const std::int64_t stored_columns = part.whole != 0 ? part.whole : columns;
  matrix.segment_columns = std::min(segment_columns, matrix.padded_columns);
  const std::int64_t segments = matrix.segment_count();
  matrix.segment_scales.resize(static_cast<std::size_t>(matrix.panel_count() * segments * kPanelRows));
  for_each_panel_row(matrix, [&](std::uint8_t* panel, std::int64_t row, std::int64_t matrix_row) {
    const std::int64_t from_row = stored_row(matrix_row);
    const E4m3* from = stored.data() + from_row * stored_columns + part.first;
    for (std::int64_t k = 0; k < columns; ++k) panel[k * kPanelRows + row] = from[k].bits;
    for (std::int64_t segment = 0; segment < segments; ++segment) {
      const std::int64_t at = (matrix_row / kPanelRows * segments + segment) * kPanelRows + row;
      matrix.segment_scales[static_cast<std::size_t>(at)] = scale_of(from_row, segment);
    }
  });
  return matrix;
}

PackedMatrix pack_f32(std::int64_t rows, std::int64_t columns,
                      const std::function<void(std::int64_t row, std::span<float> out)>& read_row) {
  PackedMatrix matrix = allocate(WeightFormat::f32, rows, columns);
  std::vector<float> values(static_cast<std::size_t>(columns));
  for_each_panel_row(matrix, [&](std::uint8_t* panel, std::int64_t row, std::int64_t matrix_row) {
    read_row(matrix_row, values);
    for (std::int64_t k = 0; k < columns; ++k)
      std::memcpy(panel + (k * kPanelRows + row) * 4, values.data() + k, 4);
  });
  return matrix;
}

}  // namespace fourfold::cpu
