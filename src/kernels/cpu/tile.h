// A tile of a matrix product in registers: some rows of numbers times the columns of a panel.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace fourfold::cpu {

// work(0), work(1), ... with the numbers known to the compiler: arrays of registers stay in registers.
template <int Count, class Work>
[[gnu::always_inline]] inline void unrolled(const Work& work) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (work(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, Count>{});
}

// sum[r][v] = rows[r] * (vector v of sixteen columns), or that plus sum[r][v], in one fused operation.
enum class First { no, yes };
template <class L, First IsFirst, int Rows, int Vectors, class Element>
[[gnu::always_inline]] inline void add_product(const float* rows, const Element* columns,
                                               typename L::V (&sum)[Rows][Vectors]) {
  constexpr bool is_first = IsFirst == First::yes;
  typename L::V column[Vectors];
  unrolled<Vectors>([&](auto v) __attribute__((always_inline)) {
    column[v] = L::load_vector(columns + v * L::vector);
  });
  unrolled<Rows / 4>([&](auto quarter) __attribute__((always_inline)) {
    const typename L::Four four = L::load_four(rows + 4 * quarter);
    unrolled<4 * Vectors>([&](auto at) __attribute__((always_inline)) {
      constexpr int of_four = at / Vectors, v = at % Vectors;
      auto& one = sum[4 * quarter + of_four][v];
      one = is_first ? L::template mul_of_four<of_four>(four, column[v])
                     : L::template fma_of_four<of_four>(four, column[v], one);
    });
  });
  unrolled<Rows % 4 * Vectors>([&](auto at) __attribute__((always_inline)) {
    constexpr int r = Rows / 4 * 4 + at / Vectors, v = at % Vectors;
    const auto row = L::broadcast_vector(rows[r]);
    sum[r][v] = is_first ? L::mul_vector(row, column[v]) : L::fma_vector(row, column[v], sum[r][v]);
  });
}

// sum[r][v] += the sum over i of rows[i * stride + r] * (vector v of the sixteen columns at columns + 16 i),
// i in order. Columns are f32 or bf16.
template <class L, int Rows, int Vectors, class Element>
[[gnu::always_inline]] inline void add_products(const float* rows, std::int64_t stride,
                                                const Element* columns, std::int64_t depth,
                                                typename L::V (&sum)[Rows][Vectors]) {
  for (std::int64_t i = 0; i < depth; ++i)
    add_product<L, First::no>(rows + i * stride, columns + i * 16, sum);
}

// to[i * Rows + r] = from[r * stride + i] for i below count, and some more up to a multiple of four.
template <class L, int Rows>
void transpose_rows(const float* from, std::int64_t stride, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += 4, to += 4 * Rows) {
    unrolled<Rows / 4>([&](auto quarter) __attribute__((always_inline)) {
      L::template transpose_four<Rows>(from + 4 * quarter * stride + i, stride, to + 4 * quarter);
    });
    unrolled<Rows % 4 * 4>([&](auto at) __attribute__((always_inline)) {
      constexpr int r = Rows / 4 * 4 + at / 4;
      to[at % 4 * Rows + r] = from[r * stride + i + at % 4];
    });
  }
}

// Tiles of `Rows`, then of half as many for what is left, down to one.
template <int Rows, class Tile>
void for_tiles(std::int64_t begin, std::int64_t end, const Tile& tile) {
  for (; begin + Rows <= end; begin += Rows) tile.template run<Rows>(begin);
  if constexpr (Rows > 1) for_tiles<Rows / 2>(begin, end, tile);
}

}  // namespace fourfold::cpu
