#include "checkpoint/matrix.h"

#include <cmath>
#include <limits>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

std::vector<E4m3> codes_1_to(int count) {
  std::vector<E4m3> codes;
  for (int i = 1; i <= count; ++i) codes.push_back(to_e4m3(static_cast<float>(i % 16)));
  return codes;
}

Matrix fp8(std::int64_t rows, std::int64_t columns, const std::vector<E4m3>& codes,
           decltype(Fp8Storage::scale) scale) {
  return {.name = "m",
          .rows = rows,
          .columns = columns,
          .storage = Fp8Storage{.codes = codes, .scale = std::move(scale), .input_scale = {}},
          .gather = {}};
}

TEST(Matrix, ReadsEachFp8Scale) {
  const std::vector<E4m3> codes = codes_1_to(6);  // 1..6 as [2, 3]
  EXPECT_EQ(read_all(fp8(2, 3, codes, Fp8TensorScale{0.5f})),
            (std::vector<float>{0.5f, 1, 1.5f, 2, 2.5f, 3}));
  EXPECT_EQ(read_all(fp8(2, 3, codes, Fp8RowScales{{2, 10}})), (std::vector<float>{2, 4, 6, 40, 50, 60}));
  // Blocks of one row by two columns: the last block of a row is narrower.
  EXPECT_EQ(read_all(fp8(2, 3, codes, Fp8BlockScales{1, 2, {1, 10, 100, 1000}})),
            (std::vector<float>{1, 2, 30, 400, 500, 6000}));
}

TEST(Matrix, ReadsPlainFormats) {
  const std::vector<float> values{1, -2, 0.5f, 4};
  const std::vector<Bf16> bf16{to_bf16(1), to_bf16(-2), to_bf16(0.5f), to_bf16(4)};
  const std::vector<F16> f16{to_f16(1), to_f16(-2), to_f16(0.5f), to_f16(4)};
  const Storage storages[] = {Bf16Storage{bf16}, F16Storage{f16}, F32Storage{values}};
  for (const Storage& storage : storages) {
    const Matrix matrix{.name = "m", .rows = 2, .columns = 2, .storage = storage, .gather = {}};
    EXPECT_EQ(read_all(matrix), values) << format_name(format_of(matrix));
    EXPECT_EQ(read_all(slice_rows(matrix, {1, 1})), (std::vector<float>{0.5f, 4}));
  }
}

TEST(Matrix, GathersRows) {
  const std::vector<float> values{0, 1, 2, 3, 4, 5};  // [6, 1]
  const Matrix matrix{.name = "m",
                      .rows = 4,
                      .columns = 1,
                      .storage = F32Storage{values},
                      .gather = {{4, 2}, {1, 1}, {0, 1}}};
  EXPECT_EQ(matrix.stored_rows(), 6);
  EXPECT_EQ(read_all(matrix), (std::vector<float>{4, 5, 1, 0}));
  EXPECT_EQ(stored_bytes(matrix), 4 * sizeof(float));
}

// A slice must mean the same as those rows of the whole, in every format.
TEST(Matrix, SlicesMeanTheSameRows) {
  Random random(7);
  constexpr std::int64_t rows = 256;
  constexpr std::int64_t columns = 160;
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<float>(random.normal()));
  const Nvfp4Matrix quantized = quantize_nvfp4_weights(values, rows, columns);
  std::vector<E4m3> codes;
  for (const float value : values) codes.push_back(to_e4m3(value));
  Fp8RowScales row_scales;
  for (std::int64_t i = 0; i < rows; ++i) row_scales.scales.push_back(static_cast<float>(i + 1));
  const Matrix wholes[] = {
      {.name = "m",
       .rows = rows,
       .columns = columns,
       .storage = Nvfp4Storage{.view = quantized.view(), .input_scale = {}},
       .gather = {}},
      fp8(rows, columns, codes, row_scales),
      fp8(rows, columns, codes, Fp8BlockScales{128, 128, {1, 2, 3, 4}}),
  };
  for (const Matrix& whole : wholes) {
    SCOPED_TRACE(format_name(format_of(whole)));
    const std::vector<float> all = read_all(whole);
    const Matrix part = slice_rows(whole, {128, 70});
    EXPECT_EQ(part.stored_rows(), 70);
    EXPECT_EQ(read_all(part), std::vector<float>(all.begin() + 128 * columns, all.begin() + 198 * columns));

    // Any rows and, of those, columns 64 to 111: inside a block of FP8 scales, at whole blocks of NVFP4.
    const RowRange picked[] = {{100, 20}, {3, 2}};
    const Matrix cut = pick_columns(pick_rows(whole, picked), {64, 48});
    std::vector<float> wanted;
    for (const RowRange& range : picked)
      for (std::int64_t row = range.first; row < range.first + range.count; ++row)
        wanted.insert(wanted.end(), all.begin() + row * columns + 64, all.begin() + row * columns + 112);
    EXPECT_EQ(read_all(cut), wanted);
    EXPECT_EQ(stored_bytes(cut), stored_bytes(whole) * static_cast<std::uint64_t>(cut.rows * cut.columns) /
                                     static_cast<std::uint64_t>(rows * columns));
    validate(cut);
    // A part of a part, its rows in another order.
    const RowRange again[] = {{20, 1}, {0, 3}};
    const Matrix smaller = pick_columns(pick_rows(cut, again), {16, 16});
    wanted.clear();
    for (const std::int64_t row : {3, 100, 101, 102})
      wanted.insert(wanted.end(), all.begin() + row * columns + 80, all.begin() + row * columns + 96);
    EXPECT_EQ(read_all(smaller), wanted);
  }
}

// A rank's share of a matrix is in the model what the whole is: the layer that drafts stays as it is there
// too.
TEST(Matrix, PartsAreWhatTheWholeIs) {
  const std::vector<float> values{0, 1, 2, 3, 4, 5};
  const Matrix whole{.name = "m",
                     .rows = 3,
                     .columns = 2,
                     .storage = F32Storage{values},
                     .gather = {},
                     .role = TensorRole::attention,
                     .of_mtp = true};
  const RowRange one{1, 1}, two[] = {{2, 1}, {0, 1}};
  for (const Matrix& part : {slice_rows(whole, one), pick_rows(whole, {&one, 1}), pick_rows(whole, two),
                             pick_columns(whole, one), narrowed(pick_rows(whole, two))}) {
    EXPECT_EQ(part.role, TensorRole::attention);
    EXPECT_TRUE(part.of_mtp);
  }
}

TEST(Matrix, ValidateNamesThePlace) {
  std::vector<float> values(8, 1.0f);
  const Matrix plain{.name = "plain", .rows = 2, .columns = 4, .storage = F32Storage{values}, .gather = {}};
  validate(plain);
  values[6] = std::numeric_limits<float>::quiet_NaN();
  expect_error(Code::bad_checkpoint, {"plain: nan at stored row 1, column 2"}, [&] { validate(plain); });

  std::vector<E4m3> codes = codes_1_to(6);
  codes[5] = {0x7F};
  expect_error(Code::bad_checkpoint, {"m: nan at stored row 1, column 2"},
               [&] { validate(fp8(2, 3, codes, Fp8TensorScale{1})); });

  Nvfp4Matrix quantized = quantize_nvfp4_weights(std::vector<float>(64, 1.0f), 2, 32);
  quantized.scales[3] = {0x7F};
  const Matrix nvfp4{.name = "experts.0",
                     .rows = 2,
                     .columns = 32,
                     .storage = Nvfp4Storage{.view = quantized.view(), .input_scale = {}},
                     .gather = {}};
  expect_error(Code::bad_checkpoint, {"experts.0: ", "0x7F"}, [&] { validate(nvfp4); });
}

}  // namespace
}  // namespace fourfold::checkpoint
