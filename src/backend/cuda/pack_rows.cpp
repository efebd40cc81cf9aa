#include "backend/cuda/pack_rows.h"

#include <cstring>
#include <vector>

#include "backend/cuda/weights.h"
#include "base/bf16.h"
#include "base/check.h"
#include "base/parallel.h"
#include "kernels/record/pack.h"
#include "kernels/record/pack_dense.h"

namespace fourfold::backend::cuda {
namespace {

// The rows of a matrix one after another, padded to whole strips, in the elements the packer takes.
struct HostRows {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;  // NVFP4
};

std::size_t padded(std::int64_t rows) {
  return static_cast<std::size_t>((rows + record::kRows - 1) / record::kRows * record::kRows);
}

void copy_rows(const checkpoint::Matrix& matrix, const void* stored, std::size_t row_bytes,
               std::vector<std::uint8_t>& to) {
  to.resize(padded(matrix.rows) * row_bytes);
  parallel_for(matrix.rows, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      std::memcpy(to.data() + static_cast<std::size_t>(row) * row_bytes,
                  static_cast<const std::uint8_t*>(stored) +
                      static_cast<std::size_t>(matrix.stored_row(row)) * row_bytes,
                  row_bytes);
  });
}

HostRows gather(RecordFormat format, const checkpoint::Matrix& matrix) {
  HostRows rows;
  const auto columns = static_cast<std::size_t>(matrix.columns);
  if (format == RecordFormat::nvfp4) {
    const Nvfp4View& view = std::get<checkpoint::Nvfp4Storage>(matrix.storage).view;
    copy_rows(matrix, view.codes.data(), columns / 2, rows.codes);
    copy_rows(matrix, view.scales.data(), columns / kNvfp4BlockColumns, rows.scales);
  } else if (format == RecordFormat::fp8) {
    copy_rows(matrix, std::get<checkpoint::Fp8Storage>(matrix.storage).codes.data(), columns, rows.codes);
  } else {
    rows.codes.resize(padded(matrix.rows) * columns * 2);
    bf16_rows(matrix, 0, reinterpret_cast<std::uint16_t*>(rows.codes.data()), matrix.rows);
  }
  return rows;
}

}  // namespace

void bf16_rows(const checkpoint::Matrix& matrix, std::int64_t first, std::uint16_t* to, std::int64_t count) {
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const auto* stored = std::get_if<checkpoint::Bf16Storage>(&matrix.storage);
  parallel_for(count, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(stored != nullptr ? 0 : columns);
    for (std::int64_t row = begin; row < end; ++row) {
      std::uint16_t* out = to + static_cast<std::size_t>(row) * columns;
      if (stored != nullptr) {
        std::memcpy(
            out, stored->values.data() + static_cast<std::size_t>(matrix.stored_row(first + row)) * columns,
            2 * columns);
        continue;
      }
      checkpoint::read_row(matrix, first + row, values);
      for (std::size_t i = 0; i < columns; ++i) out[i] = to_bf16(values[i]).bits;
    }
  });
}

void pack_rows(RecordFormat format, const checkpoint::Matrix& matrix, const checkpoint::Matrix* up,
               std::span<unsigned char> records) {
  const HostRows first = gather(format, matrix);
  const HostRows second = up != nullptr ? gather(format, *up) : HostRows{};
  const record::RowOrder order = up != nullptr ? record::RowOrder::gate_up : record::RowOrder::plain;
  const std::int64_t rows = static_cast<std::int64_t>(padded(matrix.rows)) * (up != nullptr ? 2 : 1);
  if (format != RecordFormat::nvfp4)
    return record::pack_dense(
        {.matrix = first.codes.data(),
         .up = up != nullptr ? second.codes.data() : nullptr,
         .records = records.data(),
         .rows = rows,
         .columns = matrix.columns,
         .row_stride = 0,
         .source = format == RecordFormat::fp8 ? record::DenseSource::e4m3 : record::DenseSource::bf16,
         .row_order = order});
  record::PackJob job{};
  job.matrix = {first.codes.data(), first.scales.data()};
  if (up != nullptr) job.up = {second.codes.data(), second.scales.data()};
  job.records = records.data();
  job.rows = rows;
  job.columns = matrix.columns;
  job.row_order = order;
  job.bit_order = record::BitOrder::half;
  record::pack_records<record::Nvfp4>(job);
}

float row_factor(RecordFormat format, const checkpoint::Matrix& matrix, std::int64_t row) {
  if (format == RecordFormat::nvfp4)
    return std::get<checkpoint::Nvfp4Storage>(matrix.storage).view.global_scale;
  if (format != RecordFormat::fp8) return 1.0f;
  const auto& scale = std::get<checkpoint::Fp8Storage>(matrix.storage).scale;
  if (const auto* tensor = std::get_if<checkpoint::Fp8TensorScale>(&scale)) return tensor->scale;
  return std::get<checkpoint::Fp8RowScales>(scale).scales[static_cast<std::size_t>(row)];
}

}  // namespace fourfold::backend::cuda
