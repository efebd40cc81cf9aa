// The row norm in plain scalar loops: bit for bit as norm.h orders it, and in double precision with its
// bound. Called by tests and proofs.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/dense/norm.h"

namespace fourfold::dense {

struct NormedValue {
  float bits;  // before the rounding to bf16
  double value;
  double error;  // how far `bits` may lie from `value`
};

// The sum of squares of one piece as a warp adds it: lanes of two chains of four, then the butterfly, whose
// sums are the same in every lane.
template <class Host>
float piece_square_sum_of(const float* row, int first, int columns) {
  float lane[32], other[32];
  for (int l = 0; l < 32; ++l) {
    float x[kLaneColumns];
    for (int i = 0; i < kLaneColumns; ++i) {
      const int column = first + l * kLaneColumns + i;
      x[i] = column < columns ? row[column] : 0.0f;
    }
    float chain[2] = {Host::mul(x[0], x[0]), Host::mul(x[4], x[4])};
    for (int i = 1; i < 4; ++i)
      for (int c = 0; c < 2; ++c) chain[c] = Host::fma(x[4 * c + i], x[4 * c + i], chain[c]);
    lane[l] = Host::add(chain[0], chain[1]);
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    for (int l = 0; l < 32; ++l) other[l] = lane[l ^ mask];
    for (int l = 0; l < 32; ++l) lane[l] = Host::add(lane[l], other[l]);
  }
  return lane[0];
}

// The sum of squares passes through a product, three fused additions, one of chains, five of the butterfly
// and those of the pieces, all of positive numbers: a relative error of (9 + pieces) u with u = 2^-24. The
// mean adds the rounded 1 / columns and a product (2u), epsilon one (u); the root halves that and adds u;
// reciprocal, x and weight add 3u. Host: the exact host arithmetic (device::SimCta).
template <class Host>
std::vector<NormedValue> normed_row(const float* row, const float* weight, int columns, float epsilon) {
  float total = 0.0f;
  double squares = 0.0;
  for (int first = 0; first < columns; first += kPieceColumns) {
    const float piece = piece_square_sum_of<Host>(row, first, columns);
    total = first == 0 ? piece : Host::add(total, piece);
  }
  for (int c = 0; c < columns; ++c) squares += double{row[c]} * double{row[c]};
  const float mean = Host::mul(total, Host::reciprocal(static_cast<float>(columns)));
  const float factor = Host::reciprocal(Host::sqrt(Host::add(mean, epsilon)));
  const double exact = 1.0 / std::sqrt(squares / columns + double{epsilon});
  const double relative = ((12.0 + pieces_of(columns)) / 2.0 + 4.0) * 0x1p-24 * (1.0 + 0x1p-10);
  std::vector<NormedValue> normed;
  for (int c = 0; c < columns; ++c) {
    const double value = double{row[c]} * exact * double{weight[c]};
    normed.push_back({Host::mul(Host::mul(row[c], factor), weight[c]), value, std::abs(value) * relative});
  }
  return normed;
}

}  // namespace fourfold::dense
