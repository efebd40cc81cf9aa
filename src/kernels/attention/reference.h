// What the attention kernels compute, in plain scalar loops: in double precision with bounds on what f32 and
// tensor-core arithmetic may differ from it, and bit for bit where the kernels' order is fixed. Called by
// tests and proofs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "kernels/attention/splits.h"
#include "kernels/step/step_tables.h"

namespace fourfold::attention {

struct Bounded {
  double value, error;
};

// Of a pair's angle at a position, as a model's table has them.
struct Turn {
  float cosine, sine;
};
inline Turn turn_of(int position, int pair, int pairs) {
  const double angle = position * std::pow(1e4, -static_cast<double>(pair) / pairs);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
}

// ---- prepare ----

// One head after norm and rotation: in double precision, with the size of the two numbers each rotation
// added, and in the kernel's own f32 operations.
struct PreparedHead {
  std::vector<double> value;
  std::vector<double> size;
  std::vector<float> bits;
};

// The norm's sum in the kernel's order: a lane's neighbouring columns in a chain, then lanes that differ in
// bit 4, 3, 2, 1, 0. Every lane ends with the same sum.
template <class Host>
float head_square_sum(const float* in, int head_dim) {
  const int count = head_dim / 32;
  float lane[32], other[32];
  for (int l = 0; l < 32; ++l) {
    lane[l] = 0.0f;
    for (int i = 0; i < count; ++i) lane[l] = Host::fma(in[l * count + i], in[l * count + i], lane[l]);
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    for (int l = 0; l < 32; ++l) other[l] = lane[l ^ mask];
    for (int l = 0; l < 32; ++l) lane[l] = Host::add(lane[l], other[l]);
  }
  return lane[0];
}

// The sum of the squares of a whole row as row_squares has it: pieces of 256 columns, a lane's eight in two
// chains, lanes that differ in bit 4 to 0, then the pieces in order.
template <class Host>
float row_square_sum(const float* in, int columns) {
  float total = 0.0f;
  for (int piece = 0; piece < columns; piece += 256) {
    float lane[32], other[32];
    for (int l = 0; l < 32; ++l) {
      float chain[2];
      for (int c = 0; c < 2; ++c)
        for (int i = 0; i < 4; ++i) {
          const int column = piece + 8 * l + 4 * c + i;
          const float value = column < columns ? in[column] : 0.0f;
          chain[c] = i == 0 ? Host::mul(value, value) : Host::fma(value, value, chain[c]);
        }
      lane[l] = Host::add(chain[0], chain[1]);
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      for (int l = 0; l < 32; ++l) other[l] = lane[l ^ mask];
      for (int l = 0; l < 32; ++l) lane[l] = Host::add(lane[l], other[l]);
    }
    total = Host::add(total, lane[0]);
  }
  return total;
}

// 1 / rms that a head's numbers are multiplied by: in double precision, and in the kernel's operations.
struct HeadNorm {
  double factor = 1.0;
  float inverse = 1.0f;
};
template <class Host>
HeadNorm head_norm(const float* in, int head_dim, float epsilon) {
  double square = 0;
  for (int i = 0; i < head_dim; ++i) square += static_cast<double>(in[i]) * in[i];
  const float mean =
      Host::fma(head_square_sum<Host>(in, head_dim), 1.0f / static_cast<float>(head_dim), epsilon);
  return {1.0 / std::sqrt(square / head_dim + static_cast<double>(epsilon)),
          Host::reciprocal(Host::sqrt(mean))};
}
// The same over a whole row, from the sums of its parts' squares.
template <class Host>
HeadNorm row_norm(const std::vector<float>& squares, int columns, float epsilon) {
  double square = 0;
  float sum = 0.0f;
  for (const float part : squares) square += part, sum = Host::add(sum, part);
  const float mean = Host::mul(sum, 1.0f / static_cast<float>(columns));
  return {1.0 / std::sqrt(square / columns + static_cast<double>(epsilon)),
          Host::reciprocal(Host::sqrt(Host::add(mean, epsilon)))};
}

// weight: null for a head without norm. Host: the exact host arithmetic (device::SimCta).
template <class Host>
PreparedHead prepared_head(const float* in, const float* weight, const HeadNorm& norm, int head_dim,
                           int pairs, int position) {
  PreparedHead head;
  const double factor = norm.factor;
  const float inverse = norm.inverse;
  for (int i = 0; i < head_dim; ++i) {
    head.value.push_back(weight ? in[i] * factor * weight[i] : in[i]);
    head.size.push_back(std::abs(head.value.back()));
    head.bits.push_back(weight ? Host::mul(Host::mul(in[i], inverse), weight[i]) : in[i]);
  }
  for (int j = 0; j < pairs; ++j) {
    const auto [c, s] = turn_of(position, j, pairs);
    const double a = head.value[j], b = head.value[j + pairs];
    head.value[j] = a * c - b * s;
    head.value[j + pairs] = b * c + a * s;
    head.size[j] = head.size[j + pairs] = std::abs(a) + std::abs(b);
    const float first = head.bits[j], second = head.bits[j + pairs];
    head.bits[j] = Host::fma(first, c, Host::mul(second, -s));
    head.bits[j + pairs] = Host::fma(second, c, Host::mul(first, s));
  }
  return head;
}
template <class Host>
PreparedHead prepared_head(const float* in, const float* weight, int head_dim, int pairs, int position,
                           float epsilon) {
  return prepared_head<Host>(in, weight, head_norm<Host>(in, head_dim, epsilon), head_dim, pairs, position);
}

// The norm's sum has at most 8 + 5 roundings of relative 2^-24 (half of it behind the root), then epsilon's
// fma, root, reciprocal, two products and the rotation's two: below 14 * 2^-24 of the numbers added. Behind
// it one rounding: half a unit of bf16 is 2^-8 of the number, half a unit of E4M3 2^-4, or 2^-10 below 2^-6.
inline double prepare_bound(bool to_fp8, double value, double size) {
  const double slack = 14 * 0x1p-24 * size;
  const double largest = std::abs(value) + slack;
  return slack + (to_fp8 ? std::max(largest * 0x1p-4, 0x1p-10) : largest * 0x1p-8);
}

// ---- softmax ----

// Numerators pass through a chain of at most 32 k16 steps in a split (each 2^-19.6 of the sum of w |v|), with
// a product a page; then the splits are merged with a few fma: 8 + splits / 8 + 8 of them.
inline double decode_sums(int position) {
  return 32 * std::exp2(-19.6) + (24 + split_count(position) / 8.0) * 0x1p-23;
}
// A row's numerators pass through one chain of k16 steps, four a page; sums of weights are added 17 a page.
inline double prompt_sums(int position) {
  return 4 * (position / step::kPageTokens + 1) * std::exp2(-19.6) + 0x1p-20;
}

// What a softmax is over besides a row's own position and those before it.
struct Bounds {
  int window = 0;               // as splits.h has it
  const float* sink = nullptr;  // a score without a value; null: none
};

// Softmax of one row and head over positions 0 to `position`, or the window's part of them, in double
// precision, and how far the kernels may be from it. key(p, d) and value(p, d) are the cached numbers; gate:
// [head_dim] or null. A sink is one more weight of the denominator, exact but for exp2's argument and two
// roundings, so its error is below that of a score's; what it brings the sums to their unit with (2^-22.4 and
// two roundings) is in what is added for the result.
//
// Scores. A k16 step of the tensor core cuts its 17 addends at 2^(E - 25) and its sum at 2^(e - 23), E and e
// at most the exponent of 2 A with A the sum of |q k| over the head: 17 * 2^-24 + 2^-22 < 2^-19.6 of A a
// step, head_dim / 16 steps. Adding two chains, scaling and subtracting the largest round thrice more, the
// last by 2^-24 of the difference (at most 126 octaves). A weight is therefore off by a factor within 1 +- d,
//   d = scale * A_max * (head_dim / 16) * 2^-19.6 + 2^-22 * |t|_max + 2^-22.4 (exp2),
// in the numerator also by 2^-8 (bf16). Sums: sums_error, relative to the sum of w |v|, for numerator and
// denominator together. Gate: 2^-20. Result: half a unit of bf16.
template <class Key, class Value>
std::vector<Bounded> attended(const float* query, int head_dim, int position, const Key& key,
                              const Value& value, double sums_error, const float* gate,
                              const Bounds& bounds = {}) {
  const double scale = 1.0 / std::sqrt(head_dim);
  const int first = first_seen(position, bounds.window);
  std::vector<double> score(static_cast<std::size_t>(position) + 1);
  double size_max = 0, score_max = -1e300, score_size = 0;
  if (bounds.sink) {
    score_max = static_cast<double>(*bounds.sink);
    score_size = std::abs(score_max);
  }
  for (int p = first; p <= position; ++p) {
    double sum = 0, size = 0;
    for (int d = 0; d < head_dim; ++d) {
      const double product = static_cast<double>(query[d]) * key(p, d);
      sum += product;
      size += std::abs(product);
    }
    score[p] = sum * scale;
    size_max = std::max(size_max, size * scale);
    score_max = std::max(score_max, sum * scale);
    score_size = std::max(score_size, std::abs(sum * scale));
  }
  double total = bounds.sink ? std::exp(static_cast<double>(*bounds.sink) - score_max) : 0;
  std::vector<double> sum(head_dim), size(head_dim);
  for (int p = first; p <= position; ++p) {
    const double w = std::exp(score[p] - score_max);
    total += w;
    for (int d = 0; d < head_dim; ++d) {
      const double v = value(p, d);
      sum[d] += w * v;
      size[d] += w * std::abs(v);
    }
  }
  const double weight_error =
      size_max * (head_dim / 16) * std::exp2(-19.6) + 4 * score_size * 0x1p-22 + std::exp2(-22.4);
  const double relative = 2.1 * weight_error + 0x1p-8 + sums_error;
  std::vector<Bounded> out;
  for (int d = 0; d < head_dim; ++d) {
    const double open = gate ? 1 / (1 + std::exp(-static_cast<double>(gate[d]))) : 1.0;
    const double exact = open * sum[d] / total;
    const double error = open * size[d] / total * (relative + 0x1p-19);
    out.push_back({exact, error + (std::abs(exact) + error) * 0x1p-8});
  }
  return out;
}

}  // namespace fourfold::attention
