// A dense matrix in any format with everything its tests compare with: records packed by the description in
// record.h, the decoded weights, and the dot product as the decode kernels must give it.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/random.h"
#include "base/tensor_core.h"
#include "kernels/dense/rows.h"
#include "kernels/moe/chips.h"
#include "kernels/record/pack.h"
#include "kernels/reference/dot.h"
#include "kernels/verify/inputs.h"

namespace fourfold::test {

inline std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Rows: `plain` rows, then `neurons` gate rows, then `neurons` up rows.
struct DenseMatrix {
  int plain = 0, neurons = 0, columns = 0;
  std::vector<Bf16> decoded;  // [rows, columns] what the tensor cores meet
  std::vector<std::uint8_t> records;
  int rows() const { return plain + 2 * neurons; }
  int strips() const { return rows() / record::kRows; }
  int plain_strips() const { return plain / record::kRows; }
  Bf16 at(int row, int column) const { return decoded[size(std::int64_t{row} * columns + column)]; }
};

inline int row_in_slot(const DenseMatrix& matrix, int strip, int tile, int slot) {
  using record::row_of_slot;
  if (strip < matrix.plain_strips())
    return row_of_slot(record::RowOrder::plain, record::BitOrder::half, strip, tile, slot);
  const int neuron = row_of_slot(record::RowOrder::gate_up, record::BitOrder::half,
                                 strip - matrix.plain_strips(), tile, slot);
  return matrix.plain + (slot >= 8 ? matrix.neurons : 0) + neuron;
}

// bf16 and fp8: every weight to its place. `code(row, column)` gives its bytes.
template <class Format, class Code>
void pack_weights(DenseMatrix& matrix, const Code& code) {
  matrix.records.assign(record::packed_bytes<Format>(size(matrix.rows()), size(matrix.columns)), 0);
  const int records = matrix.columns / record::kColumns;
  for (int strip = 0; strip < matrix.strips(); ++strip)
    for (int r = 0; r < records; ++r)
      for (int tile = 0; tile < 2; ++tile)
        for (int slot = 0; slot < 16; ++slot)
          for (int column = 0; column < record::kColumns; ++column) {
            const int half = column / 32, t = column % 32 / 8, step = column % 8 / 4, i = column % 4;
            const int lane = 4 * (slot & 7) + t, upper = slot >> 3;
            const auto value = code(row_in_slot(matrix, strip, tile, slot), r * record::kColumns + column);
            std::uint8_t* to = matrix.records.data() +
                               (size(strip) * size(records) + size(r)) * size(record::kRecordBytes<Format>);
            if constexpr (sizeof(value) == 2) {  // register 2 * (i / 2) + upper of the step
              to += tile * 2048 + half * 1024 + step * 512 + lane * 16 + 4 * (2 * (i / 2) + upper) +
                    2 * (i % 2);
              to[0] = static_cast<std::uint8_t>(value & 255);
              to[1] = static_cast<std::uint8_t>(value >> 8);
            } else {  // word 2 * upper + step, byte order 2, 0, 3, 1
              constexpr int place[4] = {1, 3, 0, 2};
              to[tile * 1024 + half * 512 + lane * 16 + 4 * (2 * upper + step) + place[i]] = value;
            }
          }
}

inline void pack_nvfp4(DenseMatrix& matrix, const verify::CheckpointMatrix& from) {
  matrix.records.assign(record::packed_bytes<record::Nvfp4>(size(matrix.rows()), size(matrix.columns)), 0);
  const auto part = [&](int row) {
    return record::MatrixBytes{from.codes.data() + std::int64_t{row} * matrix.columns / 2,
                               from.scales.data() + std::int64_t{row} * matrix.columns / 16};
  };
  if (matrix.plain > 0)
    record::pack_records<record::Nvfp4>({part(0),
                                         {},
                                         matrix.records.data(),
                                         matrix.plain,
                                         matrix.columns,
                                         record::RowOrder::plain,
                                         record::BitOrder::half});
  if (matrix.neurons > 0)
    record::pack_records<record::Nvfp4>(
        {part(matrix.plain), part(matrix.plain + matrix.neurons),
         matrix.records.data() +
             record::packed_bytes<record::Nvfp4>(size(matrix.plain), size(matrix.columns)),
         2 * matrix.neurons, matrix.columns, record::RowOrder::gate_up, record::BitOrder::half});
}

template <class Format>
DenseMatrix random_dense(Random& random, int plain, int neurons, int columns) {
  DenseMatrix matrix{plain, neurons, columns, {}, {}};
  const std::int64_t count = std::int64_t{matrix.rows()} * columns;
  if constexpr (std::is_same_v<Format, record::Nvfp4>) {
    const auto from = verify::random_matrix(random, matrix.rows(), columns, false);
    const auto weights = verify::reference_of(from);
    for (std::int64_t i = 0; i < count; ++i)
      matrix.decoded.push_back(to_bf16(to_float(weights.codes[size(i)]) *
                                       to_float(E4m3{weights.scale_bytes[size(i / 16)]}) / 256.0f));
    pack_nvfp4(matrix, from);
  } else if constexpr (std::is_same_v<Format, record::Fp8Format>) {
    std::vector<std::uint8_t> codes;
    for (std::int64_t i = 0; i < count; ++i) {
      auto code = static_cast<std::uint8_t>(random.below(256));
      if (is_nan(E4m3{code})) code = 0x80;
      codes.push_back(code);
      matrix.decoded.push_back(to_bf16(to_float(E4m3{code})));
    }
    pack_weights<Format>(matrix,
                         [&](int row, int c) { return codes[size(std::int64_t{row} * columns + c)]; });
  } else {
    matrix.decoded = verify::random_tokens(random, matrix.rows(), columns);
    pack_weights<Format>(matrix, [&](int row, int c) { return matrix.at(row, c).bits; });
  }
  return matrix;
}

// The sum as the tensor cores give it: segments of 512 columns, each a chain of k16 steps, added in order.
// Without the format's decode factor. `bound`: how far it may lie from the sum in double precision.
struct DenseDot {
  float bits;
  double value, bound;
};
inline DenseDot dense_dot(const DenseMatrix& matrix, int row, const Bf16* token) {
  float total = 0.0f;
  double value = 0.0, magnitude = 0.0;
  for (int first = 0; first < matrix.columns; first += moe::kSegmentColumns) {
    float segment = 0.0f;
    const int end = std::min(matrix.columns, first + moe::kSegmentColumns);
    for (int half = first; half < end; half += 32)
      for (int step = 0; step < 2; ++step) {
        tensor_core::Operand a[16], b[16];
        for (int i = 0; i < 16; ++i) {
          const int column = half + 8 * (i / 4) + 4 * step + i % 4;
          a[i] = tensor_core::split_bf16(matrix.at(row, column).bits);
          b[i] = tensor_core::split_bf16(token[column].bits);
          const double product = double{to_float(matrix.at(row, column))} * double{to_float(token[column])};
          value += product;
          magnitude += std::abs(product);
        }
        segment = tensor_core::fused_sum_16(segment, a, b);
      }
    total = first == 0 ? segment : total + segment;
  }
  const std::int64_t segments = (matrix.columns + moe::kSegmentColumns - 1) / moe::kSegmentColumns;
  return {total, value, reference::chain_bound_bf16(magnitude, matrix.columns / 16, segments)};
}

}  // namespace fourfold::test
