#include "checkpoint/load_matrix.h"

#include <limits>

#include "checkpoint/bind.h"
#include "tests/checkpoint/support.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {
namespace {

std::vector<float> rows_of(const Matrix& matrix, std::int64_t first, std::int64_t count) {
  std::vector<float> all(static_cast<std::size_t>(count * matrix.columns));
  for (std::int64_t i = 0; i < count; ++i)
    read_row(matrix, first + i,
             std::span(all).subspan(static_cast<std::size_t>(i * matrix.columns),
                                    static_cast<std::size_t>(matrix.columns)));
  return all;
}

// Every matrix of every golden model, whole and in part, against the same matrix of a copy in memory.
TEST(LoadMatrix, BringsTheRowsAMatrixHas) {
  for (const char* name : {"bf16", "compressed", "modelopt_mixed"}) {
    const auto folder = golden_model(name);
    const Checkpoint checkpoint(folder);
    const BoundModel model = bind_model(checkpoint, read_model_config(folder));
    for_each_matrix(model.weights, [&](const Matrix& matrix) {
      ASSERT_EQ(matrix.source, &checkpoint);
      const LoadedMatrix whole = load(matrix);
      ASSERT_EQ(whole.matrix.source, nullptr);
      ASSERT_FALSE(whole.bytes.empty());
      const std::int64_t first = matrix.rows / 3, count = matrix.rows - 2 * first;
      const LoadedMatrix part = load_rows(matrix, {first, count});
      EXPECT_EQ(rows_of(part.matrix, 0, count), rows_of(whole.matrix, first, count)) << matrix.name;
      const std::vector<RowRange> ranges{{first, 1}, {0, 1}};
      const LoadedMatrix two = load(pick_columns(pick_rows(matrix, ranges), {16, 16}));
      const std::vector<float> row = rows_of(whole.matrix, 0, 1);
      EXPECT_EQ(rows_of(two.matrix, 1, 1), std::vector<float>(row.begin() + 16, row.begin() + 32));
    });
  }
}

TEST(LoadMatrix, ReadsNoMoreThanTheRowsBetween) {
  const std::vector<float> values(100 * 8, 1.5f);
  const Matrix matrix{"m", 30, 8, F32Storage{values}, {{40, 10}, {70, 20}}};
  const Matrix narrow = narrowed(matrix);
  EXPECT_EQ(narrow.stored_rows(), 50);
  EXPECT_EQ(narrow.stored_row(0), 0);
  EXPECT_EQ(narrow.stored_row(10), 30);
  EXPECT_EQ(narrow.stored_row(29), 49);
}

// A tensor [8, 10] of which the matrix is every second column from the third on, turned; and parts of it.
TEST(LoadMatrix, TurnsWhatIsStoredTransposed) {
  std::vector<float> values(8 * 10);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Matrix whole{"m", 10, 8, F32Storage{values}, {}};
  whole.transposed = true;
  EXPECT_EQ(whole.stored_rows(), 10);
  const RowRange seconds{3, 3, 2};
  const Matrix some = pick_rows(whole, {&seconds, 1});
  const std::vector<float> read = read_all(some);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 8; ++column)
      EXPECT_EQ(read[row * 8 + column], values[column * 10 + 3 + 2 * row]);
  EXPECT_EQ(stored_bytes(some), 3u * 8 * 4);
  const RowRange last{1, 2};
  const Matrix corner = pick_columns(pick_rows(some, {&last, 1}), {5, 2});
  EXPECT_EQ(read_all(corner), (std::vector<float>{55, 65, 57, 67}));
}

// From a file, more columns than are turned at once: all rows, every second one, and few.
TEST(LoadMatrix, TurnsWhatAFileHasTransposed) {
  constexpr std::int64_t rows = 10, columns = 70;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const TempFolder folder;
  const auto file =
      folder.write("model.safetensors", safetensors_file({{"m", "F32", {columns, rows}, bytes_of(values)}}));
  const Checkpoint source(folder.path());
  const std::span stored(reinterpret_cast<const float*>(source.find("m")->bytes.data()), values.size());
  Matrix whole{"m", rows, columns, F32Storage{stored}, {}};
  whole.transposed = true;
  whole.source = &source;
  const auto picked = [&](RowRange range) { return pick_rows(whole, {&range, 1}); };
  for (const Matrix& matrix :
       {whole, picked({1, 5, 2}), picked({7, 3}), pick_columns(picked({1, 5, 2}), {33, 37}),
        pick_columns(picked({4, 2, 2}), {1, 66})}) {
    const std::vector<float> read = read_all(matrix);
    ASSERT_EQ(static_cast<std::int64_t>(read.size()), matrix.rows * matrix.columns);
    for (std::int64_t row = 0; row < matrix.rows; ++row)
      for (std::int64_t column = 0; column < matrix.columns; ++column)
        ASSERT_EQ(read[static_cast<std::size_t>(row * matrix.columns + column)],
                  static_cast<float>((matrix.first_column + column) * rows + matrix.stored_row(row)))
            << "row " << row << " column " << column << " of " << matrix.rows << " x " << matrix.columns;
  }
  const auto end = std::filesystem::file_size(file) - sizeof(float);  // of the last column's last row
  std::filesystem::resize_file(file, end);
  EXPECT_NO_THROW(read_all(picked({0, 5, 2})));
  for (const Matrix& matrix : {picked({1, 5, 2}), picked({9, 1})})
    expect_error(Code::io, {file.string(), "ended at byte " + std::to_string(end)},
                 [&] { read_all(matrix); });
}

TEST(LoadMatrix, ReadsEverySecondRow) {
  std::vector<float> values(10 * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Matrix whole{"m", 10, 2, F32Storage{values}, {}};
  const RowRange seconds{1, 4, 2}, middle{1, 2};
  const Matrix some = pick_rows(whole, {&seconds, 1});
  EXPECT_EQ(read_all(some), (std::vector<float>{2, 3, 6, 7, 10, 11, 14, 15}));
  const Matrix part = pick_rows(some, {&middle, 1});
  EXPECT_EQ(read_all(part), (std::vector<float>{6, 7, 10, 11}));
  EXPECT_EQ(narrowed(part).stored_rows(), 3);
  EXPECT_EQ(read_all(narrowed(part)), read_all(part));
}

// A message names the row of the file, whatever part of it was read.
TEST(LoadMatrix, NamesTheRowOfTheTensor) {
  std::vector<float> values(100 * 8, 1.5f);
  values[75 * 8 + 3] = std::numeric_limits<float>::infinity();
  const Matrix matrix{"m", 30, 8, F32Storage{values}, {{40, 10}, {70, 20}}};
  for (const Matrix& part : {matrix, narrowed(matrix), narrowed(narrowed(matrix))})
    expect_error(Code::bad_checkpoint, {"m: inf at stored row 75, column 3"}, [&] { validate(part); });
}

// Block scales are found by the stored row: a part begins where a block does.
TEST(LoadMatrix, KeepsTheScalesOfItsRows) {
  const std::vector<E4m3> codes(10 * 4, to_e4m3(1));
  const Matrix blocks{"m", 3, 4, Fp8Storage{codes, Fp8BlockScales{4, 4, {1, 2, 3}}, {}}, {{5, 1}, {7, 2}}};
  EXPECT_EQ(narrowed(blocks).stored_rows(), 5);
  EXPECT_EQ(read_all(narrowed(blocks)), (std::vector<float>{2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3}));
  const Matrix rows{
      "m", 2, 4, Fp8Storage{codes, Fp8RowScales{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {}}, {{5, 2}}};
  EXPECT_EQ(read_all(narrowed(rows)), (std::vector<float>{6, 6, 6, 6, 7, 7, 7, 7}));
}

// One that is in memory already is not copied.
TEST(LoadMatrix, LeavesMemoryAlone) {
  const std::vector<float> values(8, 1.5f);
  const LoadedMatrix loaded = load({"m", 2, 4, F32Storage{values}, {}});
  EXPECT_TRUE(loaded.bytes.empty());
  EXPECT_EQ(std::get<F32Storage>(loaded.matrix.storage).values.data(), values.data());
}

}  // namespace
}  // namespace fourfold::checkpoint
