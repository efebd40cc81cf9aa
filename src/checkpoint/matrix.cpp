// The meaning of each storage format, row by row.
#include "checkpoint/matrix.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/load_matrix.h"

namespace fourfold::checkpoint {
namespace {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;

// The columns of a stored row that are the matrix's own.
template <class T>
std::span<const T> row_of(const Matrix& matrix, std::span<const T> values, std::int64_t stored_row) {
  return values.subspan(static_cast<std::size_t>(stored_row * matrix.stored_columns() + matrix.first_column),
                        static_cast<std::size_t>(matrix.columns));
}

template <class T>
void widen(std::span<const T> values, std::span<float> out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, float>)
      out[i] = values[i];
    else
      out[i] = to_float(values[i]);
  }
}

float scale_at(const Fp8Storage& storage, std::int64_t row, std::int64_t column, std::int64_t columns) {
  return std::visit(
      Overload{
          [](const Fp8TensorScale& s) { return s.scale; },
          [&](const Fp8RowScales& s) { return s.scales[static_cast<std::size_t>(row)]; },
          [&](const Fp8BlockScales& s) {
            const std::int64_t across = (columns + s.block_columns - 1) / s.block_columns;
            return s.scales[static_cast<std::size_t>(row / s.block_rows * across + column / s.block_columns)];
          }},
      storage.scale);
}

void read_stored_row(const Matrix& matrix, const Fp8Storage& storage, std::int64_t row,
                     std::span<float> out) {
  const auto codes = row_of(matrix, storage.codes, row);
  for (std::int64_t i = 0; i < matrix.columns; ++i)
    out[static_cast<std::size_t>(i)] =
        to_float(codes[static_cast<std::size_t>(i)]) *
        scale_at(storage, row, matrix.first_column + i, matrix.stored_columns());
}

// A whole row of FP4, or the columns that are the matrix's own: value(column).
template <class Fp4View, class Value>
void read_fp4_row(const Matrix& matrix, const Fp4View& view, std::int64_t row, std::span<float> out,
                  const Value& value) {
  if (matrix.columns == view.columns) return dequantize_row(view, row, out);
  for (std::int64_t i = 0; i < matrix.columns; ++i)
    out[static_cast<std::size_t>(i)] = value(matrix.first_column + i);
}

void read_stored_row(const Matrix& matrix, const Nvfp4Storage& storage, std::int64_t row,
                     std::span<float> out) {
  const Nvfp4View& view = storage.view;
  read_fp4_row(matrix, view, row, out, [&](std::int64_t column) {
    return nvfp4_value(view.code(row, column), view.scale(row, column / kNvfp4BlockColumns),
                       view.global_scale);
  });
}

void read_stored_row(const Matrix& matrix, const Mxfp4Storage& storage, std::int64_t row,
                     std::span<float> out) {
  const Mxfp4View& view = storage.view;
  read_fp4_row(matrix, view, row, out, [&](std::int64_t column) {
    return mxfp4_value(view.code(row, column), view.scale(row, column / kMxfp4BlockColumns));
  });
}

template <class Plain>
void read_stored_row(const Matrix& matrix, const Plain& storage, std::int64_t row, std::span<float> out) {
  widen(row_of(matrix, storage.values, row), out);
}

template <class T>
void require_finite_row(std::span<const T> values, const Matrix& matrix, std::int64_t row) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    if constexpr (std::is_same_v<T, float>)
      value = values[i];
    else
      value = to_float(values[i]);
    if (std::isfinite(value)) continue;
    fail_with_hint(Code::bad_checkpoint, "the file is damaged; download it again",
                   "{}: {} at stored row {}, column {}", matrix.name, value, matrix.rows_before + row,
                   matrix.first_column + static_cast<std::int64_t>(i));
  }
}

template <class T>
void require_all_finite(std::span<const T> values, const Matrix& matrix) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t stored = matrix.stored_row(row);
    require_finite_row(row_of(matrix, values, stored), matrix, stored);
  }
}

template <class T>
std::span<const T> cut(std::span<const T> codes, RowRange range, std::int64_t per_row) {
  return codes.subspan(static_cast<std::size_t>(range.first * per_row),
                       static_cast<std::size_t>(range.count * per_row));
}

// The first block of a slice may begin inside a block of the source only if the two grids agree from there
// on.
Fp8Storage slice(const Fp8Storage& whole, RowRange range, std::int64_t columns) {
  Fp8Storage part{
      .codes = cut(whole.codes, range, columns), .scale = whole.scale, .input_scale = whole.input_scale};
  if (auto* rows = std::get_if<Fp8RowScales>(&part.scale)) {
    const auto first = rows->scales.begin() + range.first;
    rows->scales = std::vector<float>(first, first + range.count);
  } else if (auto* blocks = std::get_if<Fp8BlockScales>(&part.scale)) {
    check(range.first % blocks->block_rows == 0, "a slice begins at a block", range.first,
          blocks->block_rows);
    const std::int64_t across = (columns + blocks->block_columns - 1) / blocks->block_columns;
    const std::int64_t down = (range.count + blocks->block_rows - 1) / blocks->block_rows;
    const auto first = blocks->scales.begin() + range.first / blocks->block_rows * across;
    blocks->scales = std::vector<float>(first, first + down * across);
  }
  return part;
}

template <class Fp4>
Fp4 slice_fp4(const Fp4& whole, RowRange range, std::int64_t columns, std::int64_t block_columns) {
  Fp4 part = whole;
  part.view.rows = range.count;
  part.view.codes = cut(whole.view.codes, range, columns / 2);
  part.view.scales = cut(whole.view.scales, range, columns / block_columns);
  return part;
}
Nvfp4Storage slice(const Nvfp4Storage& whole, RowRange range, std::int64_t columns) {
  return slice_fp4(whole, range, columns, kNvfp4BlockColumns);
}
Mxfp4Storage slice(const Mxfp4Storage& whole, RowRange range, std::int64_t columns) {
  return slice_fp4(whole, range, columns, kMxfp4BlockColumns);
}

template <class Plain>
Plain slice(const Plain& whole, RowRange range, std::int64_t columns) {
  return {whole.values.subspan(static_cast<std::size_t>(range.first * columns),
                               static_cast<std::size_t>(range.count * columns))};
}

}  // namespace

std::int64_t Matrix::stored_rows() const {
  const auto elements =
      std::visit(Overload{[](const Fp8Storage& s) { return static_cast<std::int64_t>(s.codes.size()); },
                          [&](const Nvfp4Storage& s) { return s.view.rows * stored_columns(); },
                          [&](const Mxfp4Storage& s) { return s.view.rows * stored_columns(); },
                          [](const auto& plain) { return static_cast<std::int64_t>(plain.values.size()); }},
                 storage);
  return stored_columns() == 0 ? 0 : elements / stored_columns();
}

std::int64_t Matrix::stored_row(std::int64_t row) const {
  check(row >= 0 && row < rows, "the row exists", row, rows);
  for (const RowRange& range : gather) {
    if (row < range.count) return range.first + row * range.step;
    row -= range.count;
  }
  check(gather.empty(), "the ranges cover all rows", row);
  return row;
}

MatrixFormat format_of(const Matrix& matrix) {
  return std::visit(Overload{[](const Bf16Storage&) { return MatrixFormat::bf16; },
                             [](const F16Storage&) { return MatrixFormat::f16; },
                             [](const F32Storage&) { return MatrixFormat::f32; },
                             [](const Fp8Storage& s) {
                               constexpr MatrixFormat formats[] = {MatrixFormat::fp8_tensor,
                                                                   MatrixFormat::fp8_rows,
                                                                   MatrixFormat::fp8_blocks};
                               return formats[s.scale.index()];
                             },
                             [](const Nvfp4Storage&) { return MatrixFormat::nvfp4; },
                             [](const Mxfp4Storage&) { return MatrixFormat::mxfp4; }},
                    matrix.storage);
}

std::string_view format_name(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::bf16: return "BF16";
    case MatrixFormat::f16: return "F16";
    case MatrixFormat::f32: return "F32";
    case MatrixFormat::fp8_tensor: return "FP8";
    case MatrixFormat::fp8_rows: return "FP8 per row";
    case MatrixFormat::fp8_blocks: return "FP8 per block";
    case MatrixFormat::nvfp4: return "NVFP4";
    case MatrixFormat::mxfp4: return "MXFP4";
  }
  return "unknown";
}

void read_row(const Matrix& matrix, std::int64_t row, std::span<float> out) {
  check(matrix.source == nullptr && !matrix.transposed, "the matrix has been loaded", matrix.name);
  check(static_cast<std::int64_t>(out.size()) == matrix.columns, "out holds one row", out.size(),
        matrix.columns);
  const std::int64_t stored = matrix.stored_row(row);
  std::visit([&](const auto& storage) { read_stored_row(matrix, storage, stored, out); }, matrix.storage);
}

std::vector<float> read_all(const Matrix& stored) {
  const LoadedMatrix loaded = load(stored);
  const Matrix& matrix = loaded.matrix;
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.columns));
  const auto columns = static_cast<std::size_t>(matrix.columns);
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    read_row(matrix, row, std::span(values).subspan(static_cast<std::size_t>(row) * columns, columns));
  return values;
}

Matrix slice_rows(const Matrix& matrix, RowRange range) {
  check(matrix.as_stored(), "only a matrix as stored is sliced", matrix.name);
  check(range.first >= 0 && range.count >= 0 && range.first + range.count <= matrix.rows, "the rows exist",
        range.first, range.count, matrix.rows);
  Matrix part{.name = matrix.name,
              .rows = range.count,
              .columns = matrix.columns,
              .storage = {},
              .gather = {},
              .source = matrix.source,
              .role = matrix.role,
              .of_mtp = matrix.of_mtp};
  std::visit([&](const auto& storage) { part.storage = slice(storage, range, matrix.columns); },
             matrix.storage);
  return part;
}

Matrix pick_rows(const Matrix& matrix, std::span<const RowRange> ranges) {
  const auto is_cut_inside_a_block = [&](std::int64_t first) {
    const auto* fp8 = std::get_if<Fp8Storage>(&matrix.storage);
    const auto* blocks = fp8 != nullptr ? std::get_if<Fp8BlockScales>(&fp8->scale) : nullptr;
    return blocks != nullptr && first % blocks->block_rows != 0;
  };
  if (ranges.size() == 1 && ranges.front().step == 1 && matrix.as_stored() &&
      !is_cut_inside_a_block(ranges.front().first))
    return slice_rows(matrix, ranges.front());
  Matrix part = matrix;
  part.rows = 0;
  part.gather.clear();
  for (RowRange range : ranges) {
    check(range.first >= 0 && range.count >= 0 && range.end() <= matrix.rows, "the rows exist", range.first,
          range.count, matrix.rows);
    check(range.step == 1 || matrix.gather.empty(), "steps are not picked of a gather", matrix.name);
    part.rows += range.count;
    if (matrix.gather.empty()) {
      part.gather.push_back(range);
      continue;
    }
    std::int64_t begin = 0;  // of a range of the whole, among its rows
    for (const RowRange& whole : matrix.gather) {
      const std::int64_t low = std::max(begin, range.first);
      const std::int64_t high = std::min(begin + whole.count, range.first + range.count);
      if (low < high)
        part.gather.push_back({whole.first + (low - begin) * whole.step, high - low, whole.step});
      begin += whole.count;
    }
  }
  return part;
}

Matrix pick_columns(const Matrix& matrix, RowRange range) {
  check(range.first >= 0 && range.count >= 0 && range.first + range.count <= matrix.columns,
        "the columns exist", range.first, range.count, matrix.columns);
  if (std::holds_alternative<Nvfp4Storage>(matrix.storage))
    check(range.first % kNvfp4BlockColumns == 0 && range.count % kNvfp4BlockColumns == 0,
          "NVFP4 is cut at whole blocks", range.first, range.count);
  if (std::holds_alternative<Mxfp4Storage>(matrix.storage))
    check(range.first % kMxfp4BlockColumns == 0 && range.count % kMxfp4BlockColumns == 0,
          "MXFP4 is cut at whole blocks", range.first, range.count);
  Matrix part = matrix;
  part.whole_columns = matrix.stored_columns();
  part.first_column = matrix.first_column + range.first;
  part.columns = range.count;
  return part;
}

Matrix narrowed(const Matrix& matrix) {
  if (matrix.gather.empty() || matrix.transposed) return matrix;
  std::int64_t first = matrix.stored_rows(), end = 0;
  for (const RowRange& range : matrix.gather) {
    first = std::min(first, range.first);
    end = std::max(end, range.end());
  }
  const auto* fp8 = std::get_if<Fp8Storage>(&matrix.storage);
  const auto* blocks = fp8 != nullptr ? std::get_if<Fp8BlockScales>(&fp8->scale) : nullptr;
  if (blocks != nullptr) first = first / blocks->block_rows * blocks->block_rows;
  first = std::min(first, end);  // a matrix without rows
  Matrix part = matrix;
  std::visit(
      [&](const auto& storage) {
        part.storage = slice(storage, {first, end - first}, matrix.stored_columns());
      },
      matrix.storage);
  for (RowRange& range : part.gather) range.first -= first;
  part.rows_before += first;
  return part;
}

void for_each_range(const Matrix& matrix, const std::function<void(std::span<const std::byte>)>& visit) {
  const auto visit_both = [&](const auto& view) {
    visit(std::as_bytes(view.codes));
    visit(std::as_bytes(view.scales));
  };
  std::visit(Overload{[&](const Fp8Storage& s) { visit(std::as_bytes(s.codes)); },
                      [&](const Nvfp4Storage& s) { visit_both(s.view); },
                      [&](const Mxfp4Storage& s) { visit_both(s.view); },
                      [&](const auto& plain) { visit(std::as_bytes(plain.values)); }},
             matrix.storage);
}

std::uint64_t stored_bytes(const Matrix& matrix) {
  std::uint64_t bytes = 0;
  for_each_range(matrix, [&](std::span<const std::byte> range) { bytes += range.size(); });
  // Rows are all of one size, so a part of a tensor owns its share of it.
  if (matrix.as_stored()) return bytes;
  const std::uint64_t of_rows =
      bytes / static_cast<std::uint64_t>(matrix.stored_rows()) * static_cast<std::uint64_t>(matrix.rows);
  return of_rows * static_cast<std::uint64_t>(matrix.columns) /
         static_cast<std::uint64_t>(matrix.stored_columns());
}

void validate(const Matrix& matrix) {
  check(matrix.source == nullptr && !matrix.transposed, "the matrix has been loaded", matrix.name);
  const auto validate_fp4 = [&](const auto& view) {  // of a part, too: all of the tensor's scales
    try {
      fourfold::validate(view);
    } catch (const Error& error) {
      throw Error(error.code(), std::string(matrix.name) + ": " + error.what(), error.hint());
    }
  };
  std::visit(Overload{[&](const Fp8Storage& s) { require_all_finite(s.codes, matrix); },
                      [&](const Nvfp4Storage& s) { validate_fp4(s.view); },
                      [&](const Mxfp4Storage& s) { validate_fp4(s.view); },
                      [&](const auto& plain) { require_all_finite(plain.values, matrix); }},
             matrix.storage);
}

}  // namespace fourfold::checkpoint
