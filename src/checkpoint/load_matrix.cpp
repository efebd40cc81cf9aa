#include "checkpoint/load_matrix.h"

#include <algorithm>
#include <new>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/shard_index.h"

namespace fourfold::checkpoint {
namespace {

std::unique_ptr<std::byte[]> allocated(std::size_t bytes, std::string_view name) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory == nullptr) fail(Code::out_of_memory, "{}: {} bytes cannot be allocated", name, bytes);
  return memory;
}

template <class T>
void bring(const Checkpoint& source, std::span<const T>& elements, LoadedMatrix& loaded) {
  const auto stored = std::as_bytes(elements);
  auto bytes = allocated(stored.size(), loaded.matrix.name);
  source.read(stored, {bytes.get(), stored.size()});
  elements = {reinterpret_cast<const T*>(bytes.get()), elements.size()};
  loaded.bytes.push_back(std::move(bytes));
}

void bring_all(const Checkpoint& source, Nvfp4Storage& storage, LoadedMatrix& loaded) {
  bring(source, storage.view.codes, loaded);
  bring(source, storage.view.scales, loaded);
}
void bring_all(const Checkpoint& source, Mxfp4Storage& storage, LoadedMatrix& loaded) {
  bring(source, storage.view.codes, loaded);
  bring(source, storage.view.scales, loaded);
}
void bring_all(const Checkpoint& source, Fp8Storage& storage, LoadedMatrix& loaded) {
  bring(source, storage.codes, loaded);
}
template <class Plain>
void bring_all(const Checkpoint& source, Plain& storage, LoadedMatrix& loaded) {
  bring(source, storage.values, loaded);
}

// A matrix that is stored as its transpose: of its columns the stored pieces with the rows that are wanted
// are read, and turned. Pieces of half a stored column and more are read with what lies between them.
template <class Plain>
void bring_turned(const Matrix& matrix, const Plain& stored, LoadedMatrix& loaded) {
  using T = std::remove_cv_t<typename decltype(stored.values)::element_type>;
  const std::int64_t all_rows = matrix.stored_rows();
  std::int64_t low = matrix.gather.empty() ? 0 : all_rows, high = matrix.gather.empty() ? matrix.rows : 0;
  for (const RowRange& range : matrix.gather)
    low = std::min(low, range.first), high = std::max(high, range.end());
  const auto count = static_cast<std::size_t>(matrix.rows * matrix.columns);
  auto bytes = allocated(count * sizeof(T), matrix.name);
  T* to = reinterpret_cast<T*>(bytes.get());
  std::vector<std::int64_t> rows(static_cast<std::size_t>(matrix.rows));
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row] = matrix.stored_row(static_cast<std::int64_t>(row)) - low;
  // Some columns at a time, so that a row's part of them is written at once.
  constexpr std::int64_t at_once = 32;
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(high - low, 0));
  const bool in_one = 2 * width >= static_cast<std::size_t>(all_rows);
  const std::size_t pitch = in_one ? static_cast<std::size_t>(all_rows) : width;
  std::vector<T> pieces(at_once * pitch);
  const auto take = [&](std::int64_t column, std::size_t size, T* out) {
    const auto first = static_cast<std::size_t>((matrix.first_column + column) * all_rows + low);
    const auto from = stored.values.subspan(first, size);
    if (matrix.source != nullptr)
      matrix.source->read(std::as_bytes(from), std::as_writable_bytes(std::span(out, size)));
    else
      std::copy(from.begin(), from.end(), out);
  };
  for (std::int64_t column = 0; column < matrix.columns; column += at_once) {
    const auto taken = static_cast<std::size_t>(std::min(at_once, matrix.columns - column));
    if (in_one)
      take(column, (taken - 1) * pitch + width, pieces.data());
    else
      for (std::size_t i = 0; i < taken; ++i)
        take(column + static_cast<std::int64_t>(i), width, pieces.data() + i * pitch);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      T* out = to + row * static_cast<std::size_t>(matrix.columns) + static_cast<std::size_t>(column);
      for (std::size_t i = 0; i < taken; ++i)
        out[i] = pieces[i * pitch + static_cast<std::size_t>(rows[row])];
    }
  }
  loaded.matrix.storage = Plain{{to, count}};
  loaded.bytes.push_back(std::move(bytes));
}

LoadedMatrix load_turned(const Matrix& matrix) {
  LoadedMatrix loaded{matrix, {}};
  loaded.matrix.gather.clear();
  loaded.matrix.first_column = loaded.matrix.whole_columns = 0;
  loaded.matrix.transposed = false;
  loaded.matrix.source = nullptr;
  std::visit(
      [&](const auto& storage) {
        if constexpr (requires { storage.values; })
          bring_turned(matrix, storage, loaded);
        else
          check(false, "only plain numbers are stored transposed", matrix.name);
      },
      matrix.storage);
  return loaded;
}

}  // namespace

LoadedMatrix load(const Matrix& matrix) {
  if (matrix.transposed) return load_turned(matrix);
  if (matrix.source == nullptr) return {matrix, {}};
  LoadedMatrix loaded{narrowed(matrix), {}};
  std::visit([&](auto& storage) { bring_all(*matrix.source, storage, loaded); }, loaded.matrix.storage);
  loaded.matrix.source = nullptr;
  return loaded;
}

LoadedMatrix load_rows(const Matrix& matrix, RowRange range) { return load(pick_rows(matrix, {&range, 1})); }

}  // namespace fourfold::checkpoint
