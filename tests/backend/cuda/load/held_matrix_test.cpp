#include "backend/cuda/load/held_matrix.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/random.h"
#include "checkpoint/shard_index.h"
#include "tests/checkpoint/support.h"

namespace fourfold::backend::cuda {
namespace {

using checkpoint::expect_error;
using checkpoint::Matrix;
using checkpoint::TensorRole;

constexpr std::int64_t kRows = 37, kColumns = 128;
constexpr std::string_view kName = "model.layers.0.self_attn.o_proj.weight";

std::vector<float> random_values(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  for (float& value : values) value = to_float(to_bf16(static_cast<float>(random.normal())));
  return values;
}

std::vector<Bf16> to_bf16_all(const std::vector<float>& values) {
  std::vector<Bf16> out;
  for (const float value : values) out.push_back(to_bf16(value));
  return out;
}

struct Filled {
  std::vector<std::byte> codes, scales;
  ErrorSums error;
};
Filled fill(const HeldMatrix& held, std::int64_t first, std::int64_t count) {
  const auto rows = static_cast<std::size_t>(count);
  Filled filled{std::vector<std::byte>(rows * code_row_bytes(held.format, kColumns), std::byte{0xEE}),
                std::vector<std::byte>(rows * scale_row_bytes(held.format, kColumns), std::byte{0xEE}),
                {}};
  fill_rows(held, first, count, {filled.codes.data(), filled.scales.data()}, &filled.error);
  return filled;
}

TEST(HeldMatrix, WhatDenseMeans) {
  const auto values = random_values(1);
  const auto bf16 = to_bf16_all(values);
  const auto matrix_of = [&](TensorRole role) {
    return Matrix{.name = kName,
                  .rows = kRows,
                  .columns = kColumns,
                  .storage = checkpoint::Bf16Storage{bf16},
                  .gather = {},
                  .role = role};
  };
  for (const TensorRole role : {TensorRole::attention, TensorRole::delta, TensorRole::shared_expert,
                                TensorRole::dense_mlp, TensorRole::head}) {
    Matrix matrix = matrix_of(role);
    EXPECT_EQ(record_format(matrix, std::nullopt), WeightFormat::bf16);
    EXPECT_EQ(record_format(matrix, WeightFormat::fp8), WeightFormat::fp8);
    EXPECT_EQ(record_format(matrix, WeightFormat::nvfp4), WeightFormat::nvfp4);
    matrix.of_mtp = true;
    EXPECT_EQ(record_format(matrix, WeightFormat::nvfp4), WeightFormat::bf16);
  }
  for (const TensorRole role : {TensorRole::routed_expert, TensorRole::router, TensorRole::other})
    EXPECT_EQ(record_format(matrix_of(role), WeightFormat::nvfp4), WeightFormat::bf16);
  // What is quantised stays.
  const std::vector<E4m3> codes(bf16.size(), to_e4m3(1));
  Matrix fp8 = matrix_of(TensorRole::attention);
  fp8.storage = checkpoint::Fp8Storage{codes, checkpoint::Fp8TensorScale{1}, std::nullopt};
  EXPECT_EQ(record_format(fp8, WeightFormat::nvfp4), WeightFormat::fp8);
}

// A format the backend has no records for is refused by name; it never becomes another.
TEST(HeldMatrix, OtherFormatsAreRefused) {
  const auto bf16 = to_bf16_all(random_values(1));
  const Matrix head{.name = "lm_head.weight",
                    .rows = kRows,
                    .columns = kColumns,
                    .storage = checkpoint::Bf16Storage{bf16},
                    .gather = {},
                    .role = TensorRole::head};
  expect_error(Code::internal, {"f32"}, [&] { record_bytes(WeightFormat::f32); });
  expect_error(Code::internal, {"f32"}, [&] { code_row_bytes(WeightFormat::f32, 64); });
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::mxfp4, WeightFormat::f32})
    expect_error(Code::unsupported_op, {"lm_head.weight", std::string(format_name(format))},
                 [&] { record_format(head, format); });
}

// Rows in a row, gathered rows, and zeros behind the last.
TEST(HeldMatrix, FillsRowsAsTheyAreStored) {
  const auto values = random_values(2);
  const auto bf16 = to_bf16_all(values);
  Matrix matrix{kName, kRows, kColumns, checkpoint::Bf16Storage{bf16}, {}};
  for (const bool gathered : {false, true}) {
    if (gathered) matrix = {kName, 30, kColumns, checkpoint::Bf16Storage{bf16}, {{20, 15}, {3, 10}, {0, 5}}};
    const HeldMatrix held = hold(matrix, WeightFormat::bf16);
    EXPECT_FALSE(held.is_anew);
    for (std::int64_t first = 0; first < matrix.rows; first += 9) {
      const Filled filled = fill(held, first, 14);
      for (std::int64_t row = first; row < first + 14; ++row)
        for (std::int64_t c = 0; c < kColumns; ++c) {
          Bf16 got;
          std::memcpy(&got, filled.codes.data() + 2 * ((row - first) * kColumns + c), 2);
          const Bf16 wanted = row < matrix.rows
                                  ? bf16[static_cast<std::size_t>(matrix.stored_row(row) * kColumns + c)]
                                  : Bf16{0};
          ASSERT_EQ(got.bits, wanted.bits) << gathered << " row " << row << " column " << c;
        }
    }
  }
}

// gpt-oss's layouts: every second row, of codes and scales; and numbers that are stored transposed, whole and
// some columns of every second row.
TEST(HeldMatrix, FillsEverySecondRowAndWhatIsTransposed) {
  const auto values = random_values(3);
  const Mxfp4Matrix mxfp4 = quantize_mxfp4_weights(values, kRows, kColumns);
  const Matrix seconds{kName, 18, kColumns, checkpoint::Mxfp4Storage{mxfp4.view()}, {{1, 18, 2}}};
  const Filled filled = fill(hold(seconds, WeightFormat::mxfp4), 2, 9);
  for (std::size_t row = 0; row < 9; ++row) {
    constexpr std::size_t code_bytes = kColumns / 2, scale_bytes = kColumns / kMxfp4BlockColumns;
    const std::size_t stored = 1 + 2 * (2 + row);
    EXPECT_EQ(std::memcmp(&filled.codes[row * code_bytes], &mxfp4.codes[stored * code_bytes], code_bytes), 0);
    EXPECT_EQ(
        std::memcmp(&filled.scales[row * scale_bytes], &mxfp4.scales[stored * scale_bytes], scale_bytes), 0);
  }

  // [kColumns + 64, kRows] in the file.
  std::vector<Bf16> turned(static_cast<std::size_t>((kColumns + 64) * kRows), Bf16{0});
  const auto bf16 = to_bf16_all(values);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t c = 0; c < kColumns; ++c)
      turned[static_cast<std::size_t>((c + 64) * kRows + row)] =
          bf16[static_cast<std::size_t>(row * kColumns + c)];
  Matrix whole{kName, kRows, kColumns + 64, checkpoint::Bf16Storage{turned}, {}};
  whole.transposed = true;
  const checkpoint::RowRange odd{1, 18, 2};
  const Matrix part = checkpoint::pick_columns(checkpoint::pick_rows(whole, {&odd, 1}), {64, kColumns});
  const Filled plain = fill(hold(part, WeightFormat::bf16), 3, 7);
  for (std::size_t row = 0; row < 7; ++row)
    EXPECT_EQ(
        std::memcmp(&plain.codes[row * 2 * kColumns], &bf16[(1 + 2 * (3 + row)) * kColumns], 2 * kColumns), 0)
        << row;
}

// A rank's columns where a width has no record for each: what is left of the last record is zeros, whose
// codes and scales add nothing to a sum.
TEST(HeldMatrix, ColumnsBehindTheMatrixAreZeros) {
  const auto values = random_values(7);
  const auto bf16 = to_bf16_all(values);
  const Nvfp4Matrix nvfp4 = quantize_nvfp4_weights(values, kRows, kColumns);
  const Mxfp4Matrix mxfp4 = quantize_mxfp4_weights(values, kRows, kColumns);
  const Matrix wholes[] = {{kName, kRows, kColumns, checkpoint::Bf16Storage{bf16}, {}},
                           {kName, kRows, kColumns, checkpoint::Nvfp4Storage{nvfp4.view(), std::nullopt}, {}},
                           {kName, kRows, kColumns, checkpoint::Mxfp4Storage{mxfp4.view()}, {}}};
  for (const Matrix& whole : wholes) {
    const HeldMatrix all = hold(whole, record_format(whole, std::nullopt));
    const Filled stored = fill(all, 0, kRows);
    const Matrix part = checkpoint::pick_columns(whole, {32, 96});
    const HeldMatrix held = hold(part, all.format);
    SCOPED_TRACE(format_name(held.format));
    ASSERT_EQ(held.columns(), kColumns);  // two records, of which one is half empty
    const Filled filled = fill(held, 0, kRows);
    const auto expect_cut = [](const std::vector<std::byte>& got, const std::vector<std::byte>& wanted) {
      const std::size_t row_bytes = wanted.size() / kRows, skipped = row_bytes / 4;  // 32 of 128 columns
      for (std::size_t at = 0; at < got.size(); ++at) {
        const bool is_behind = at % row_bytes >= row_bytes - skipped;
        ASSERT_EQ(got[at], is_behind ? std::byte{0} : wanted[at + skipped]) << "byte " << at;
      }
    };
    expect_cut(filled.codes, stored.codes);
    expect_cut(filled.scales, stored.scales);
  }
}

// From a file, more of it than is read at once: every second row, whole and some columns, behind other rows.
// Nothing behind the last of them is read, and a file that has become too short is an error.
TEST(HeldMatrix, ReadsEverySecondRowOfAFile) {
  constexpr std::int64_t rows = 41, columns = 1 << 17;
  std::vector<E4m3> codes;
  Random random(6);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    codes.push_back({static_cast<std::uint8_t>(random.bits() % 0x7F)});
  const checkpoint::TempFolder folder;
  const auto file =
      folder.write("model.safetensors",
                   checkpoint::safetensors_file(
                       {{std::string(kName), "F8_E4M3", {rows, columns}, checkpoint::bytes_of(codes)}}));
  const checkpoint::Checkpoint source(folder.path());
  const std::span stored(reinterpret_cast<const E4m3*>(source.find(kName)->bytes.data()), codes.size());
  Matrix whole{
      kName, rows, columns, checkpoint::Fp8Storage{stored, checkpoint::Fp8TensorScale{1}, std::nullopt}, {}};
  whole.source = &source;
  const checkpoint::RowRange ranges[] = {{30, 2}, {1, 20, 2}};
  const Matrix seconds = pick_rows(whole, ranges);
  for (const Matrix& matrix : {seconds, pick_columns(seconds, {64, columns / 2})}) {
    const HeldMatrix held = hold(matrix, WeightFormat::fp8);
    const auto width = static_cast<std::size_t>(matrix.columns);
    std::vector<std::byte> filled(21 * width);
    fill_rows(held, 1, 21, {filled.data(), nullptr}, nullptr);
    for (std::int64_t row = 1; row < 22; ++row)
      ASSERT_EQ(std::memcmp(
                    &filled[static_cast<std::size_t>(row - 1) * width],
                    &codes[static_cast<std::size_t>(matrix.stored_row(row) * columns + matrix.first_column)],
                    width),
                0)
          << "row " << row << " of " << matrix.columns << " columns";
  }
  const auto end = std::filesystem::file_size(file) - static_cast<std::uintmax_t>((rows - 20) * columns);
  std::filesystem::resize_file(file, end);  // in front of stored row 20
  std::vector<std::byte> filled(20 * static_cast<std::size_t>(columns));
  const HeldMatrix held = hold(seconds, WeightFormat::fp8);
  EXPECT_NO_THROW(fill_rows(held, 2, 10, {filled.data(), nullptr}, nullptr));
  const std::string hint =
      expect_error(Code::io, {file.string(), "ended at byte " + std::to_string(end)}, [&] {
        fill_rows(held, 2, 11, {filled.data(), nullptr}, nullptr);
      });
  EXPECT_NE(hint.find("start again"), std::string::npos) << hint;
}

// A rank's rows and columns of a matrix in FP8 with a scale a row: codes and scales are those of the stored
// rows.
TEST(HeldMatrix, CutFp8KeepsTheScalesOfItsStoredRows) {
  std::vector<E4m3> codes;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i)
    codes.push_back({static_cast<std::uint8_t>(i * 7 % 0x7F)});
  checkpoint::Fp8RowScales scales;
  for (std::int64_t row = 0; row < kRows; ++row) scales.scales.push_back(0.5f + static_cast<float>(row));
  const Matrix whole{kName, kRows, kColumns, checkpoint::Fp8Storage{codes, scales, std::nullopt}, {}};
  const checkpoint::RowRange rows[] = {{20, 10}, {4, 6}, {31, 6}};
  const Matrix cuts[] = {pick_rows(whole, rows), pick_columns(whole, {64, 64}),
                         pick_columns(pick_rows(whole, rows), {64, 64})};
  for (const Matrix& cut : cuts) {
    EXPECT_EQ(record_format(cut, std::nullopt), WeightFormat::fp8);
    const HeldMatrix held = hold(cut, WeightFormat::fp8);
    EXPECT_FALSE(held.is_anew);
    for (std::int64_t first = 0; first < cut.rows; first += 9) {
      const auto count = static_cast<std::size_t>(14);
      std::vector<std::byte> filled(count * static_cast<std::size_t>(cut.columns), std::byte{0xEE});
      fill_rows(held, first, 14, {filled.data(), nullptr}, nullptr);
      for (std::int64_t row = first; row < std::min(first + 14, cut.rows); ++row) {
        const std::int64_t stored = cut.gather.empty() ? row
                                    : row < 10         ? 20 + row
                                    : row < 16         ? row - 6
                                                       : 15 + row;
        ASSERT_EQ(held.factor(row), 0.5f + static_cast<float>(stored)) << row;
        for (std::int64_t c = 0; c < cut.columns; ++c)
          ASSERT_EQ(
              static_cast<std::uint8_t>(filled[static_cast<std::size_t>((row - first) * cut.columns + c)]),
              codes[static_cast<std::size_t>(stored * kColumns + cut.first_column + c)].bits)
              << "row " << row << " column " << c << " of " << cut.columns;
      }
    }
  }
}

// FP8 with a scale a row; NVFP4 in one piece or in several, with the bits of base's quantiser; the error as
// it is defined, computed here from the values alone.
TEST(HeldMatrix, QuantisesAnewAndMeasuresTheError) {
  const auto values = random_values(3);
  const auto bf16 = to_bf16_all(values);
  const Matrix matrix{kName, kRows, kColumns, checkpoint::Bf16Storage{bf16}, {}};
  const auto square = [](double x) { return x * x; };
  double squares = 0;
  for (const float value : values) squares += square(value);

  const HeldMatrix fp8 = hold(matrix, WeightFormat::fp8);
  const Filled rows = fill(fp8, 0, kRows);
  double off = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / kColumns;
    float amax = 0;
    for (std::size_t c = 0; c < kColumns; ++c) amax = std::max(amax, std::abs(values[row * kColumns + c]));
    EXPECT_EQ(fp8.factor(static_cast<std::int64_t>(row)), amax / 448.0f);
    const E4m3 code{static_cast<std::uint8_t>(rows.codes[i])};
    off += square(static_cast<double>(to_float(code) * (amax / 448.0f)) - static_cast<double>(values[i]));
  }
  EXPECT_NEAR(rows.error.squares, squares, 1e-9 * squares);
  EXPECT_NEAR(rows.error.off_squares, off, 1e-9 * off);
  EXPECT_NEAR(std::sqrt(off / squares), 0.026, 0.004) << "E4M3 keeps four significant bits";

  const HeldMatrix nvfp4 = hold(matrix, WeightFormat::nvfp4);
  const Nvfp4Matrix whole = quantize_nvfp4_weights(values, kRows, kColumns);
  EXPECT_EQ(nvfp4.factor(5), whole.global_scale);
  const std::vector<float> back = dequantize(whole.view());
  off = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    off += square(static_cast<double>(back[i]) - static_cast<double>(values[i]));
  ErrorSums sums;
  for (const std::int64_t first : {0, 16, 32}) {
    const Filled part = fill(nvfp4, first, 16);
    sums.squares += part.error.squares, sums.off_squares += part.error.off_squares;
    const std::size_t there = static_cast<std::size_t>(std::min<std::int64_t>(16, kRows - first));
    EXPECT_EQ(std::memcmp(part.codes.data(), whole.codes.data() + first * kColumns / 2, there * kColumns / 2),
              0);
    EXPECT_EQ(
        std::memcmp(part.scales.data(), whole.scales.data() + first * kColumns / 16, there * kColumns / 16),
        0);
  }
  EXPECT_NEAR(sums.squares, squares, 1e-9 * squares);
  EXPECT_NEAR(sums.off_squares, off, 1e-9 * off);
}

TEST(HeldMatrix, NamesTheMatrixWhoseWeightIsNoNumber) {
  auto values = random_values(4);
  auto bf16 = to_bf16_all(values);
  bf16[5 * kColumns + 7] = to_bf16(std::numeric_limits<float>::infinity());
  const Matrix matrix{kName, kRows, kColumns, checkpoint::Bf16Storage{bf16}, {}};
  expect_error(Code::bad_checkpoint, {std::string(kName), "row 5, column 7"},
               [&] { fill(hold(matrix, WeightFormat::bf16), 0, kRows); });
  EXPECT_NO_THROW(fill(hold(matrix, WeightFormat::bf16), 6, 10));
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::nvfp4})
    expect_error(Code::bad_checkpoint, {std::string(kName), "row 5, column 7"},
                 [&] { hold(matrix, format); });
  std::vector<E4m3> codes(bf16.size(), to_e4m3(1));
  codes[3 * kColumns + 1] = {0xFF};
  const Matrix fp8{
      kName, kRows, kColumns, checkpoint::Fp8Storage{codes, checkpoint::Fp8TensorScale{1}, std::nullopt}, {}};
  expect_error(Code::bad_checkpoint, {std::string(kName), "row 3, column 1"},
               [&] { fill(hold(fp8, WeightFormat::fp8), 0, kRows); });
  Nvfp4Matrix fp4 = quantize_nvfp4_weights(values, kRows, kColumns);
  fp4.scales[9] = {0x80};
  const Matrix nvfp4{kName, kRows, kColumns, checkpoint::Nvfp4Storage{fp4.view(), std::nullopt}, {}};
  expect_error(Code::bad_checkpoint, {std::string(kName), "row 1, block 1"},
               [&] { fill(hold(nvfp4, WeightFormat::nvfp4), 0, kRows); });
}

// The check by words takes every finite number and refuses each of the others at every place of a word.
TEST(HeldMatrix, TellsNumbersFromTheRest) {
  std::vector<Bf16> bf16;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7F80) != 0x7F80) bf16.push_back({static_cast<std::uint16_t>(bits)});
  const auto rows = static_cast<std::int64_t>(bf16.size()) / kColumns;
  ASSERT_EQ(rows * kColumns, static_cast<std::int64_t>(bf16.size()));
  const Matrix plain{kName, rows, kColumns, checkpoint::Bf16Storage{bf16}, {}};
  EXPECT_NO_THROW(fill(hold(plain, WeightFormat::bf16), 0, rows));
  for (const Bf16 bad : {Bf16{0x7F80}, Bf16{0xFF80}, Bf16{0x7F81}, Bf16{0xFFFF}})
    for (std::size_t at = 1000; at < 1005; ++at) {
      const Bf16 before = std::exchange(bf16[at], bad);
      EXPECT_THROW(fill(hold(plain, WeightFormat::bf16), 0, rows), Error) << bad.bits << " at " << at;
      bf16[at] = before;
    }
  std::vector<E4m3> codes;
  for (int i = 0; i < kColumns * 4; ++i) codes.push_back({static_cast<std::uint8_t>(i)});
  for (E4m3& code : codes)
    if (is_nan(code)) code = {0x7E};
  const Matrix fp8{
      kName, 4, kColumns, checkpoint::Fp8Storage{codes, checkpoint::Fp8TensorScale{1}, std::nullopt}, {}};
  EXPECT_NO_THROW(fill(hold(fp8, WeightFormat::fp8), 0, 4));
  Nvfp4Matrix fp4 = quantize_nvfp4_weights(random_values(5), kRows, kColumns);
  for (std::size_t i = 0; i < fp4.scales.size(); ++i) fp4.scales[i] = {static_cast<std::uint8_t>(i % 0x7F)};
  const Matrix nvfp4{kName, kRows, kColumns, checkpoint::Nvfp4Storage{fp4.view(), std::nullopt}, {}};
  EXPECT_NO_THROW(fill(hold(nvfp4, WeightFormat::nvfp4), 0, kRows));
  for (std::size_t at = 100; at < 109; ++at) {
    for (const E4m3 bad : {E4m3{0x7F}, E4m3{0xFF}}) {
      const E4m3 code = std::exchange(codes[at], bad);
      EXPECT_THROW(fill(hold(fp8, WeightFormat::fp8), 0, 4), Error) << at;
      codes[at] = code;
    }
    for (const E4m3 bad : {E4m3{0x7F}, E4m3{0xFF}, E4m3{0x80}, E4m3{0x81}}) {
      const E4m3 scale = std::exchange(fp4.scales[at], bad);
      EXPECT_THROW(fill(hold(nvfp4, WeightFormat::nvfp4), 0, kRows), Error) << at;
      fp4.scales[at] = scale;
    }
  }
}

}  // namespace
}  // namespace fourfold::backend::cuda
