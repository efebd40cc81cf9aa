// A weight matrix of a checkpoint in whichever format its tensors have, in its files until load() brings it
// to memory (load_matrix.h). y = W x with W [rows, columns]. Formats differ by type: code that forgets one
// does not compile. The two conventions for NVFP4's global scale end here, in Nvfp4View::global_scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/f16.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"
#include "checkpoint/tensor_role.h"

namespace fourfold::checkpoint {

class Checkpoint;

struct Bf16Storage {
  std::span<const Bf16> values;  // [rows, columns]
};
struct F16Storage {
  std::span<const F16> values;
};
struct F32Storage {
  std::span<const float> values;
};

// Weight scales multiply: value = code * scale.
struct Fp8TensorScale {
  float scale = 1.0f;
};
struct Fp8RowScales {
  std::vector<float> scales;  // [rows]
};
struct Fp8BlockScales {
  std::int64_t block_rows = 0;
  std::int64_t block_columns = 0;
  std::vector<float> scales;  // [ceil(rows / block_rows), ceil(columns / block_columns)]
};
// MXFP8 is FP8 in blocks of one row and this many columns.
inline constexpr std::int64_t kMxfp8BlockColumns = 32;
struct Fp8Storage {
  std::span<const E4m3> codes;  // [rows, columns]
  std::variant<Fp8TensorScale, Fp8RowScales, Fp8BlockScales> scale;
  std::optional<float> input_scale;  // amax of the inputs / 448, where the model was calibrated
};

struct Nvfp4Storage {
  Nvfp4View view;
  std::optional<Nvfp4InputScale> input_scale;  // absent: made for 16-bit activations
};

// No scale above the blocks', and none for inputs: they are 16 bits wide, or scaled as they come.
struct Mxfp4Storage {
  Mxfp4View view;
};

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  // 2: every second row, as gpt-oss has gate and up in one tensor
  std::int64_t end() const { return count == 0 ? first : first + (count - 1) * step + 1; }
};

using Storage = std::variant<Bf16Storage, F16Storage, F32Storage, Fp8Storage, Nvfp4Storage, Mxfp4Storage>;

struct Matrix {
  std::string_view name;  // of the tensor with the weights
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Storage storage;  // of stored_rows() rows and stored_columns() columns
  // Empty: row i is stored row i. Otherwise the rows are these ranges of stored rows, one after another;
  // Qwen3-Next keeps several projections interleaved in one tensor.
  std::vector<RowRange> gather;
  // Where a rank of several has some columns only: those from first_column on, of rows that are
  // whole_columns wide in the storage. 0: all of them.
  std::int64_t first_column = 0;
  std::int64_t whole_columns = 0;
  // 16- and 32-bit numbers that are stored as [stored columns, stored rows]: load() turns them.
  bool transposed = false;
  // Whose files the storage's elements are in: its spans are addresses, not memory. Null: they are in memory.
  const Checkpoint* source = nullptr;
  // Rows of the tensor before the first stored one, which narrowed() left out: for messages.
  std::int64_t rows_before = 0;
  // What bind_model() knows from the matrix's place in the model, and what is cut out of it keeps.
  TensorRole role = TensorRole::other;
  bool of_mtp = false;  // of the layer that drafts, which is never quantised
  // Of a tensor that stacks experts: the module that this is where each has tensors of its own,
  // "model.layers.3.mlp.experts.7.up_proj".
  std::string expert_module = {};

  bool as_stored() const { return gather.empty() && whole_columns == 0 && !transposed; }
  std::int64_t stored_columns() const { return whole_columns != 0 ? whole_columns : columns; }
  std::int64_t stored_rows() const;
  std::int64_t stored_row(std::int64_t row) const;
};

enum class MatrixFormat { bf16, f16, f32, fp8_tensor, fp8_rows, fp8_blocks, nvfp4, mxfp4 };
MatrixFormat format_of(const Matrix& matrix);
std::string_view format_name(MatrixFormat format);

// What a matrix in memory means: row `row` in f32. out has `columns` elements.
void read_row(const Matrix& matrix, std::int64_t row, std::span<float> out);

// [rows, columns] in f32, for tests and small matrices, wherever it is.
std::vector<float> read_all(const Matrix& matrix);

// Rows first..first + count of a matrix that is as stored. Block-scaled FP8 is cut at whole blocks only.
Matrix slice_rows(const Matrix& matrix, RowRange range);

// Views of part of a matrix's own rows or columns, whatever it is itself a view of. Neither copies weights.
// Ranges with steps are picked of matrices without a gather alone.
// Columns of NVFP4 are cut at multiples of 16, of MXFP4 of 32.
Matrix pick_rows(const Matrix& matrix, std::span<const RowRange> ranges);
Matrix pick_columns(const Matrix& matrix, RowRange range);

// The same matrix over no more stored rows than those from its first to its last one.
Matrix narrowed(const Matrix& matrix);

// Calls visit with each piece of the storage the matrix reads (scalars and vectors of scales were copied and
// are left out). A matrix that is part of a tensor visits all of it.
void for_each_range(const Matrix& matrix, const std::function<void(std::span<const std::byte>)>& visit);
// Bytes in the file that are this matrix's own.
std::uint64_t stored_bytes(const Matrix& matrix);

// Reads every scale and every 16- and 8-bit element of a matrix in memory and throws bad_checkpoint, naming
// the matrix and the position, at the first NaN, infinity or negative block scale.
void validate(const Matrix& matrix);

}  // namespace fourfold::checkpoint
