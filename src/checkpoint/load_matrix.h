// Matrices brought into memory: copied out of their files, row by row as they are stored. Whatever looks at
// weights does it here or behind here: a file that changes meanwhile is an error, not the process's end.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/matrix.h"

namespace fourfold::checkpoint {

// `matrix` looks at `bytes`, or, if it was in memory already, at memory of others.
struct LoadedMatrix {
  Matrix matrix;
  std::vector<std::unique_ptr<std::byte[]>> bytes;
};

// Reads the stored rows from the first to the last that the matrix has. Throws io, naming the file, when that
// has become shorter, and out_of_memory.
LoadedMatrix load(const Matrix& matrix);
LoadedMatrix load_rows(const Matrix& matrix, RowRange range);

}  // namespace fourfold::checkpoint
