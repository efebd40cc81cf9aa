#include "backend/cuda/load/held_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/bf16.h"
#include "base/check.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/load_matrix.h"
#include "checkpoint/shard_index.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {
namespace {

using checkpoint::Matrix;
using checkpoint::MatrixFormat;

bool is_plain(const Matrix& matrix) {
  const MatrixFormat format = checkpoint::format_of(matrix);
  return format == MatrixFormat::bf16 || format == MatrixFormat::f16 || format == MatrixFormat::f32;
}

WeightFormat stored_format(const Matrix& matrix) {
  switch (checkpoint::format_of(matrix)) {
    case MatrixFormat::nvfp4: return WeightFormat::nvfp4;
    case MatrixFormat::mxfp4: return WeightFormat::mxfp4;
    case MatrixFormat::fp8_tensor:
    case MatrixFormat::fp8_rows: return WeightFormat::fp8;
    default: return WeightFormat::bf16;
  }
}

// Each range of stored rows, evenly apart, that the asked rows are: use(stored rows, which of the asked).
template <class Use>
void for_each_stored_range(const Matrix& matrix, std::int64_t first, std::int64_t count, const Use& use) {
  if (matrix.gather.empty()) return use(checkpoint::RowRange{first, count}, std::int64_t{0});
  std::int64_t begin = 0;  // of the range, among the matrix's rows
  for (const checkpoint::RowRange& range : matrix.gather) {
    const std::int64_t low = std::max(begin, first), high = std::min(begin + range.count, first + count);
    if (low < high)
      use(checkpoint::RowRange{range.first + (low - begin) * range.step, high - low, range.step},
          low - first);
    begin += range.count;
  }
}

// What is read to take pieces from: a task's rows of gpt-oss with those between them.
constexpr std::size_t kReadBytes = std::size_t{2} << 20;

// Every second row, or rows of which this matrix has some columns: all that lies between is read too, for
// many short reads cost more.
void copy_pieces(const Matrix& matrix, std::span<const std::byte> stored, std::size_t whole_bytes,
                 std::size_t skipped, std::size_t row_bytes, checkpoint::RowRange range, std::byte* to) {
  const std::size_t stride = static_cast<std::size_t>(range.step) * whole_bytes;
  const auto at_once = static_cast<std::int64_t>(std::max<std::size_t>(1, kReadBytes / stride));
  std::vector<std::byte> read;
  for (std::int64_t row = 0; row < range.count; row += at_once) {
    const checkpoint::RowRange some{range.first + row * range.step, std::min(at_once, range.count - row),
                                    range.step};
    auto part = stored.subspan(static_cast<std::size_t>(some.first) * whole_bytes,
                               static_cast<std::size_t>(some.end() - some.first) * whole_bytes);
    if (matrix.source != nullptr) {
      read.resize(part.size());
      matrix.source->read(part, read);
      part = read;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(some.count); ++i, to += row_bytes)
      std::memcpy(to, part.data() + i * stride + skipped, row_bytes);
  }
}

void copy_rows(const Matrix& matrix, std::span<const std::byte> stored, std::size_t row_bytes,
               std::int64_t first, std::int64_t count, std::byte* to) {
  const auto of_whole = [&](std::int64_t columns) {
    return row_bytes * static_cast<std::size_t>(columns) / static_cast<std::size_t>(matrix.columns);
  };
  const std::size_t whole_bytes = of_whole(matrix.stored_columns()), skipped = of_whole(matrix.first_column);
  for_each_stored_range(matrix, first, count, [&](checkpoint::RowRange range, std::int64_t at) {
    std::byte* out = to + static_cast<std::size_t>(at) * row_bytes;
    if (range.step != 1 || matrix.whole_columns != 0)
      return copy_pieces(matrix, stored, whole_bytes, skipped, row_bytes, range, out);
    const auto part = stored.subspan(static_cast<std::size_t>(range.first) * row_bytes,
                                     static_cast<std::size_t>(range.count) * row_bytes);
    if (matrix.source != nullptr)
      matrix.source->read(part, {out, part.size()});
    else
      std::memcpy(out, part.data(), part.size());
  });
}

// Marks, eight bytes at a time and three operations each: a lane's top bit says that it is no number. Adding
// one to the exponent (with E4M3: to the code) carries into that bit only if it was all ones.
constexpr std::uint64_t kEachByte = 0x0101010101010101u, kEachHalf = 0x0001000100010001u;
constexpr std::uint64_t marks_bf16(std::uint64_t word) {
  return ((word & (0x7F80 * kEachHalf)) + 0x80 * kEachHalf) & (0x8000 * kEachHalf);
}
constexpr std::uint64_t marks_e4m3(std::uint64_t word) {
  return ((word & (0x7F * kEachByte)) + kEachByte) & (0x80 * kEachByte);
}
constexpr std::uint64_t marks_scale(std::uint64_t word) {
  return marks_e4m3(word) | (word & (0x80 * kEachByte));
}

// What was copied is looked at once, while it is in cache; validate() then finds the place.
template <std::uint64_t (*Marks)(std::uint64_t)>
void require_numbers(const Matrix& matrix, const std::byte* copied, std::size_t bytes) {
  std::uint64_t found = 0, word = 0;
  for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
    std::memcpy(&word, copied + at, 8);
    found |= Marks(word);
  }
  word = 0;  // no marks
  std::memcpy(&word, copied + bytes / 8 * 8, bytes % 8);
  if ((found | Marks(word)) == 0) return;
  checkpoint::validate(checkpoint::load(matrix).matrix);
  fail_with_hint(Code::bad_checkpoint, "the file has been changed while it was read; start again",
                 "{}: holds a weight that is no number", matrix.name);
}

// Records hold the powers of two with which every product is exact in bf16; checkpoints have few beyond
// 2^-20. A block of zeros may have any scale, and gets 2^0.
void require_scales(const Matrix& matrix, std::int64_t first, std::size_t row_bytes, const FillTarget& copied,
                    std::size_t rows) {
  constexpr std::size_t block_bytes = kMxfp4BlockColumns / 2;
  for (std::size_t at = 0; at < rows * row_bytes; ++at) {
    const auto byte = static_cast<int>(copied.scales[at]);
    if (byte >= record::Mxfp4::smallest_scale_byte && byte <= record::Mxfp4::largest_scale_byte) continue;
    const std::span<const std::byte> codes(copied.codes + at * block_bytes, block_bytes);
    const auto is_zero = [](std::byte two) { return (two & std::byte{0x77}) == std::byte{0}; };
    if (byte != 255 && std::ranges::all_of(codes, is_zero)) {
      copied.scales[at] = std::byte{127};
      continue;
    }
    fail_with_hint(
        Code::bad_checkpoint, "Run it with --backend cpu, or download it again.",
        "{}: the scale of row {}, block {} is byte {}; the GPU backend has 2^{} to 2^{}, bytes {} to {}",
        matrix.name, first + static_cast<std::int64_t>(at / row_bytes), at % row_bytes, byte,
        record::Mxfp4::smallest_scale_byte - 127, record::Mxfp4::largest_scale_byte - 127,
        record::Mxfp4::smallest_scale_byte, record::Mxfp4::largest_scale_byte);
  }
}

void fill_as_stored(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to) {
  const Matrix& matrix = *held.matrix;
  const std::size_t code_bytes = code_row_bytes(held.format, matrix.columns);
  const std::size_t scale_bytes = scale_row_bytes(held.format, matrix.columns);
  const auto rows = static_cast<std::size_t>(count);
  const auto copy_codes = [&](std::span<const std::byte> stored) {
    copy_rows(matrix, stored, code_bytes, first, count, to.codes);
  };
  if (const auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&matrix.storage)) {
    copy_codes(std::as_bytes(nvfp4->view.codes));
    copy_rows(matrix, std::as_bytes(nvfp4->view.scales), scale_bytes, first, count, to.scales);
    require_numbers<marks_scale>(matrix, to.scales, rows * scale_bytes);
  } else if (const auto* mxfp4 = std::get_if<checkpoint::Mxfp4Storage>(&matrix.storage)) {
    copy_codes(std::as_bytes(mxfp4->view.codes));
    copy_rows(matrix, std::as_bytes(mxfp4->view.scales), scale_bytes, first, count, to.scales);
    require_scales(matrix, first, scale_bytes, to, rows);
  } else if (const auto* fp8 = std::get_if<checkpoint::Fp8Storage>(&matrix.storage)) {
    copy_codes(std::as_bytes(fp8->codes));
    require_numbers<marks_e4m3>(matrix, to.codes, rows * code_bytes);
  } else {
    copy_codes(std::as_bytes(std::get<checkpoint::Bf16Storage>(matrix.storage).values));
    require_numbers<marks_bf16>(matrix, to.codes, rows * code_bytes);
  }
}

// [count, columns] in f32.
std::vector<float> read_rows(const Matrix& matrix, std::int64_t first, std::int64_t count) {
  const auto columns = static_cast<std::size_t>(matrix.columns);
  std::vector<float> values(static_cast<std::size_t>(count) * columns);
  const checkpoint::LoadedMatrix part = checkpoint::load_rows(matrix, {first, count});
  for (std::int64_t row = 0; row < count; ++row) {
    const auto out = std::span(values).subspan(static_cast<std::size_t>(row) * columns, columns);
    checkpoint::read_row(part.matrix, row, out);
    for (std::size_t i = 0; i < columns; ++i)
      if (!std::isfinite(out[i]))
        fail_with_hint(Code::bad_checkpoint, "the file is damaged; download it again",
                       "{}: {} at row {}, column {}", matrix.name, out[i], first + row, i);
  }
  return values;
}

void add_error(ErrorSums& sums, float wanted, float held) {
  const double off = static_cast<double>(held) - static_cast<double>(wanted);
  sums.squares += static_cast<double>(wanted) * static_cast<double>(wanted);
  sums.off_squares += off * off;
}

void quantize_fp8(const HeldMatrix& held, std::int64_t first, std::span<const float> values, std::byte* to,
                  ErrorSums& sums) {
  const auto columns = static_cast<std::size_t>(held.matrix->columns);
  for (std::size_t row = 0; row * columns < values.size(); ++row) {
    const float scale = held.scales[static_cast<std::size_t>(first) + row];
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      const E4m3 code = to_e4m3(values[i] / scale);
      to[i] = std::byte{code.bits};
      add_error(sums, values[i], to_float(code) * scale);
    }
  }
}

void quantize_nvfp4(const HeldMatrix& held, std::int64_t rows, std::span<const float> values,
                    const FillTarget& to, ErrorSums& sums) {
  const std::int64_t columns = held.matrix->columns;
  const Nvfp4Matrix made = quantize_nvfp4_weights(values, rows, columns, held.scales[1]);
  check(made.global_scale == held.scales[0], "all rows of a matrix share its scale", made.global_scale);
  std::memcpy(to.codes, made.codes.data(), made.codes.size());
  std::memcpy(to.scales, made.scales.data(), made.scales.size());
  std::vector<float> back(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    dequantize_row(made.view(), row, back);
    for (std::size_t i = 0; i < back.size(); ++i)
      add_error(sums, values[static_cast<std::size_t>(row) * back.size() + i], back[i]);
  }
}

}  // namespace

[[noreturn]] static void refuse_format(WeightFormat format) {
  fail(Code::internal, "no records of {} weights: the GPU backend holds bf16, fp8, nvfp4 and mxfp4",
       format_name(format));
}

std::int64_t record_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16: return record::kRecordBytes<record::Bf16Format>;
    case WeightFormat::fp8: return record::kRecordBytes<record::Fp8Format>;
    case WeightFormat::nvfp4: return record::kRecordBytes<record::Nvfp4>;
    case WeightFormat::mxfp4: return record::kRecordBytes<record::Mxfp4>;
    case WeightFormat::f32: break;
  }
  refuse_format(format);
}

bool is_dense(const Matrix& matrix) {
  if (matrix.of_mtp) return false;
  switch (matrix.role) {
    case checkpoint::TensorRole::shared_expert:
    case checkpoint::TensorRole::dense_mlp:
    case checkpoint::TensorRole::attention:
    case checkpoint::TensorRole::delta:
    case checkpoint::TensorRole::head: return true;
    case checkpoint::TensorRole::routed_expert:
    case checkpoint::TensorRole::router:
    case checkpoint::TensorRole::other: break;
  }
  return false;
}

WeightFormat record_format(const Matrix& matrix, DenseWeights dense) {
  if (!dense || !is_plain(matrix) || !is_dense(matrix)) return stored_format(matrix);
  if (*dense != WeightFormat::fp8 && *dense != WeightFormat::nvfp4)
    fail(Code::unsupported_op, "{}: weights are quantised to fp8 or nvfp4 at load, not to {}", matrix.name,
         format_name(*dense));
  return *dense;
}

bool is_widened(const Matrix& matrix) {
  const MatrixFormat format = checkpoint::format_of(matrix);
  return format == MatrixFormat::f16 || format == MatrixFormat::f32 || format == MatrixFormat::fp8_blocks;
}

std::size_t code_row_bytes(WeightFormat format, std::int64_t columns) {
  const auto count = static_cast<std::size_t>(columns);
  switch (format) {
    case WeightFormat::bf16: return 2 * count;
    case WeightFormat::fp8: return count;
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4: return count / 2;
    case WeightFormat::f32: break;
  }
  refuse_format(format);
}

std::size_t scale_row_bytes(WeightFormat format, std::int64_t columns) {
  const std::int64_t blocks = format == WeightFormat::nvfp4   ? columns / kNvfp4BlockColumns
                              : format == WeightFormat::mxfp4 ? columns / kMxfp4BlockColumns
                                                              : 0;
  return static_cast<std::size_t>(blocks);
}

float HeldMatrix::factor(std::int64_t row) const {
  if (is_anew) return format == WeightFormat::nvfp4 ? scales[0] : scales[static_cast<std::size_t>(row)];
  if (format == WeightFormat::nvfp4)
    return std::get<checkpoint::Nvfp4Storage>(matrix->storage).view.global_scale;
  if (format != WeightFormat::fp8) return 1.0f;
  const auto& scale = std::get<checkpoint::Fp8Storage>(matrix->storage).scale;
  if (const auto* tensor = std::get_if<checkpoint::Fp8TensorScale>(&scale)) return tensor->scale;
  // Scales are those of the stored rows; a rank's rows are gathered from them.
  return std::get<checkpoint::Fp8RowScales>(scale).scales[static_cast<std::size_t>(matrix->stored_row(row))];
}

HeldMatrix hold(const Matrix& matrix, WeightFormat format) {
  HeldMatrix held{&matrix, format, false, {}};
  if (format == stored_format(matrix) || format == WeightFormat::bf16) return held;
  held.is_anew = true;
  std::vector<float> largest(static_cast<std::size_t>(matrix.rows));
  const auto columns = static_cast<std::size_t>(matrix.columns);
  parallel_for(matrix.rows, 64, [&](std::int64_t begin, std::int64_t end) {
    const std::vector<float> values = read_rows(matrix, begin, end - begin);
    for (std::size_t row = 0; row * columns < values.size(); ++row) {
      float amax = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
        amax = std::max(amax, std::abs(values[i]));
      largest[static_cast<std::size_t>(begin) + row] = amax;
    }
  });
  if (format == WeightFormat::nvfp4) {
    const float amax = *std::max_element(largest.begin(), largest.end());
    held.scales = {nvfp4_weight_global_scale(amax), amax};
    return held;
  }
  for (float& amax : largest) amax = amax == 0 ? 1.0f : std::max(amax / kE4m3Largest, 0x1p-126f);
  held.scales = std::move(largest);
  return held;
}

std::int64_t HeldMatrix::columns() const {
  return (matrix->columns + record::kColumns - 1) / record::kColumns * record::kColumns;
}

namespace {

// As wide as the matrix.
void fill_own_columns(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to,
                      ErrorSums* error) {
  const Matrix& matrix = *held.matrix;
  const std::int64_t there = std::clamp<std::int64_t>(matrix.rows - first, 0, count);
  const std::size_t code_bytes = code_row_bytes(held.format, matrix.columns);
  const std::size_t scale_bytes = scale_row_bytes(held.format, matrix.columns);
  const auto skip = static_cast<std::size_t>(there), rest = static_cast<std::size_t>(count - there);
  std::memset(to.codes + skip * code_bytes, 0, rest * code_bytes);
  if (scale_bytes > 0) std::memset(to.scales + skip * scale_bytes, 0, rest * scale_bytes);
  if (there == 0) return;
  const bool as_stored =
      !held.is_anew && !is_widened(matrix) && !matrix.transposed && stored_format(matrix) == held.format;
  if (as_stored) return fill_as_stored(held, first, there, to);
  const std::vector<float> values = read_rows(matrix, first, there);
  ErrorSums sums;
  if (held.format == WeightFormat::fp8) {
    quantize_fp8(held, first, values, to.codes, sums);
  } else if (held.format == WeightFormat::nvfp4) {
    quantize_nvfp4(held, there, values, to, sums);
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Bf16 rounded = to_bf16(values[i]);
      std::memcpy(to.codes + 2 * i, &rounded, 2);
    }
  }
  if (error != nullptr && held.is_anew) *error = sums;
}

}  // namespace

void fill_rows(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to,
               ErrorSums* error) {
  if (held.columns() == held.matrix->columns) return fill_own_columns(held, first, count, to, error);
  const auto rows = static_cast<std::size_t>(count);
  const std::size_t code_bytes = code_row_bytes(held.format, held.matrix->columns),
                    scale_bytes = scale_row_bytes(held.format, held.matrix->columns);
  std::vector<std::byte> codes(rows * code_bytes), scales(rows * scale_bytes);
  fill_own_columns(held, first, count, {codes.data(), scales.data()}, error);
  const auto widen = [&](const std::vector<std::byte>& own, std::size_t own_bytes, std::size_t bytes,
                         std::byte* at) {
    for (std::size_t row = 0; row < rows && bytes > 0; ++row, at += bytes) {
      std::memcpy(at, own.data() + row * own_bytes, own_bytes);
      std::memset(at + own_bytes, 0, bytes - own_bytes);
    }
  };
  widen(codes, code_bytes, code_row_bytes(held.format, held.columns()), to.codes);
  widen(scales, scale_bytes, scale_row_bytes(held.format, held.columns()), to.scales);
}

}  // namespace fourfold::backend::cuda
