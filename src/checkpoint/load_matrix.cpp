#include "checkpoint/load_matrix.h"

#include <new>
#include <span>

#include "base/error.h"
#include "checkpoint/shard_index.h"

namespace fourfold::checkpoint {
namespace {

template <class T>
void bring(const Checkpoint& source, std::span<const T>& elements, LoadedMatrix& loaded) {
  const auto stored = std::as_bytes(elements);
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[stored.size()]);
  if (bytes == nullptr)
    fail(Code::out_of_memory, "{}: {} bytes cannot be allocated", loaded.matrix.name, stored.size());
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

}  // namespace

LoadedMatrix load(const Matrix& matrix) {
  if (matrix.source == nullptr) return {matrix, {}};
  LoadedMatrix loaded{narrowed(matrix), {}};
  std::visit([&](auto& storage) { bring_all(*matrix.source, storage, loaded); }, loaded.matrix.storage);
  loaded.matrix.source = nullptr;
  return loaded;
}

LoadedMatrix load_rows(const Matrix& matrix, RowRange range) { return load(pick_rows(matrix, {&range, 1})); }

}  // namespace fourfold::checkpoint
