// Matrices in double precision that know how far a kernel's f32 or bf16 numbers may be from them, entry by
// entry.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "kernels/reference/dot.h"

namespace fourfold::delta {

inline constexpr double kU = 0x1p-24;  // of one f32 rounding, relative
// Bounds are of first order but for product(), which takes the errors of both sides along. What the steps
// beside it leave out is an error times a relative error of f32: of a rounding, a gate or a decay, 2^-17 at
// most (3 u and u times an exponent of 87), some twelve times from a row to its result; and of a key's and a
// query's length, 2^-9 at most unless one is shorter than 2^-12 of what its convolution adds up. Together
// 2^-8 and 2^-13.
inline constexpr double kHigherOrder = 1.01;

struct Bounded {
  double value, error;
};

// bf16 as the kernels round, of a number that may be `error` away: rounding is monotone, so the ends decide.
// Most numbers have no tie that near, and their rounding is certain.
inline Bounded rounded(const Bounded& x) {
  const auto round = [](double v) { return double{to_float(to_bf16(static_cast<float>(v)))}; };
  const double value = round(x.value), reach = kHigherOrder * x.error;
  return {value, std::max(round(x.value + reach) - value, value - round(x.value - reach))};
}

struct Matrix {
  int rows = 0, columns = 0;
  std::vector<double> value, error;

  Matrix() = default;
  Matrix(int row_count, int column_count)
      : rows(row_count),
        columns(column_count),
        value(static_cast<std::size_t>(row_count) * column_count),
        error(value.size()) {}
  std::size_t at(int row, int column) const {
    return static_cast<std::size_t>(row) * columns + static_cast<std::size_t>(column);
  }
  Bounded get(int row, int column) const { return {value[at(row, column)], error[at(row, column)]}; }
  void set(int row, int column, const Bounded& x) {
    value[at(row, column)] = x.value;
    error[at(row, column)] = x.error;
  }
  // Values that a device has: nothing is uncertain about them.
  void set_exact(int row, const std::vector<double>& values) {
    for (int i = 0; i < columns; ++i) set(row, i, {values[i], 0.0});
  }
};

inline Matrix transposed(const Matrix& m) {
  Matrix out(m.columns, m.rows);
  for (int i = 0; i < m.rows; ++i)
    for (int j = 0; j < m.columns; ++j) out.set(j, i, m.get(i, j));
  return out;
}

// sum + a b on the tensor cores: bf16 operands whose errors go through the product, and what steps of
// sixteen addends lose (reference/dot.h) of the sum of absolute values.
inline Matrix product(const Matrix& a, const Matrix& b, Matrix sum) {
  std::vector<double> size(static_cast<std::size_t>(b.columns));
  for (int i = 0; i < a.rows; ++i) {
    double* value = &sum.value[sum.at(i, 0)];
    double* error = &sum.error[sum.at(i, 0)];
    for (int j = 0; j < b.columns; ++j) size[j] = std::abs(value[j]) + error[j];
    for (int k = 0; k < a.columns; ++k) {
      const auto [x, x_error] = a.get(i, k);
      if (x == 0 && x_error == 0) continue;
      const double* y = &b.value[b.at(k, 0)];
      const double* y_error = &b.error[b.at(k, 0)];
      const double most = std::abs(x) + x_error;
      for (int j = 0; j < b.columns; ++j) {
        const double through = most * y_error[j] + x_error * std::abs(y[j]);
        value[j] += x * y[j];
        error[j] += through;
        size[j] += std::abs(x * y[j]) + through;
      }
    }
    const double lost = reference::chain_bound_bf16(1.0, (a.columns + 15) / 16, 0);
    for (int j = 0; j < b.columns; ++j) error[j] += lost * size[j];
  }
  return sum;
}
inline Matrix product(const Matrix& a, const Matrix& b) { return product(a, b, Matrix(a.rows, b.columns)); }

}  // namespace fourfold::delta
