// A checkpoint's matrix as records, on all cores of the host.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/matrix.h"

namespace fourfold::backend::cuda {

enum class RecordFormat;

// Rows are padded with zeros to whole strips; with `up` the rows of both are interleaved (gate_up order). The
// matrices must be of the format, except bf16, which everything can become.
void pack_rows(RecordFormat format, const checkpoint::Matrix& matrix, const checkpoint::Matrix* up,
               std::span<unsigned char> records);

// What a row's dot product is still to be multiplied with.
float row_factor(RecordFormat format, const checkpoint::Matrix& matrix, std::int64_t row);

// Rows first..first + count as bf16.
void bf16_rows(const checkpoint::Matrix& matrix, std::int64_t first, std::uint16_t* to, std::int64_t count);

}  // namespace fourfold::backend::cuda
