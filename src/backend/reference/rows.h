// A table of f32 rows, and the scalar functions the model uses. Between ops everything is f32; inside an op
// sums are double, so an op's result is its exact value rounded once (nearly always) and whoever is compared
// with it only owes an account of his own rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace fourfold::backend::reference {

struct Rows {
  std::int64_t columns = 0;
  std::vector<float> cells;

  Rows() = default;
  Rows(std::int64_t row_count, std::int64_t column_count, float fill = 0)
      : columns(column_count), cells(row_count * column_count, fill) {}
  std::int64_t count() const { return columns == 0 ? 0 : static_cast<std::int64_t>(cells.size()) / columns; }
  std::span<float> row(std::int64_t index) { return std::span(cells).subspan(index * columns, columns); }
  std::span<const float> row(std::int64_t index) const {
    return std::span(cells).subspan(index * columns, columns);
  }
};

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

inline double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace fourfold::backend::reference
