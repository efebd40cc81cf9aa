// What latent attention computes, in double precision, with bounds on what the kernels may differ from it.
// Called by tests and proofs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention/reference.h"
#include "kernels/mla/latent_page.h"

namespace fourfold::mla {

using attention::Bounded;

// Roundings of a row's sums, relative to the sum of w |v|: numerators pass through a chain of two k16 steps a
// tile (each 2^-19.6, attention/reference.h) and a product a tile; sums of weights through a tree of five and
// an fma a tile; decode then merges its splits.
inline double tile_roundings(int tiles) { return 2 * tiles * std::exp2(-19.6) + (3 * tiles + 8) * 0x1p-24; }
inline double decode_sums(int position) {
  const int most = attention::kLargestSplitPages * kPageTiles;
  return tile_roundings(most) + (24 + attention::split_count(position) / 8.0) * 0x1p-23;
}
inline double prompt_sums(int position) { return tile_roundings(position / kTilePositions + 1); }
// With wgmma: a chain of four k16 steps a page and a product a page; sums of weights through an fma and eight
// additions of a pair a page; then two more, the reciprocal and its product.
inline double wgmma_sums(int position) {
  const int pages = position / kPageTokens + 1;
  return 4 * pages * std::exp2(-19.6) + (1 + 17 * pages + 4) * 0x1p-24;
}

// k16 steps of a score's longest chain: a quarter of them and one addition, or all.
constexpr int mma_chain(int width) { return width / kPanelColumns + 1; }
constexpr int wgmma_chain(int width) { return width / 16; }

// What the kernels' order of operations adds to the error of a row.
struct Roundings {
  double sums;
  int chain;
};
inline Roundings decode_roundings(int position, int width) {
  return {decode_sums(position), mma_chain(width)};
}
inline Roundings prompt_roundings(int position, int width, bool wgmma) {
  return wgmma ? Roundings{wgmma_sums(position), wgmma_chain(width)}
               : Roundings{prompt_sums(position), mma_chain(width)};
}

// Softmax of one query vector over positions 0 to `position`. key(p, d): the cached numbers, of which the
// first `latent` are the value.
//
// Scores. A k16 step is off by at most 2^-19.6 of its own sum of |q k|. Each of mma's four chains has one a
// panel: together panels * 2^-19.6 of A, that sum over all columns; wgmma's one chain has width / 16, each
// off by that of A. Two additions, the scaling and the subtraction of the largest round by 2^-24 each. The
// rest is as in attention's: a weight is off by a factor within 1 +- d, in the numerator also by 2^-8 (bf16),
// and the result by half a unit of bf16.
template <class Key>
std::vector<Bounded> attended(const float* query, int latent, int width, double scale, int position,
                              const Key& key, const Roundings& roundings) {
  std::vector<double> score(static_cast<std::size_t>(position) + 1);
  double size_max = 0, score_max = -1e300, score_size = 0;
  for (int p = 0; p <= position; ++p) {
    double sum = 0, size = 0;
    for (int d = 0; d < width; ++d) {
      const double product = static_cast<double>(query[d]) * static_cast<double>(key(p, d));
      sum += product;
      size += std::abs(product);
    }
    score[static_cast<std::size_t>(p)] = sum * scale;
    size_max = std::max(size_max, size * scale);
    score_max = std::max(score_max, sum * scale);
    score_size = std::max(score_size, std::abs(sum * scale));
  }
  double total = 0;
  std::vector<double> sum(static_cast<std::size_t>(latent)), size(static_cast<std::size_t>(latent));
  for (int p = 0; p <= position; ++p) {
    const double w = std::exp(score[static_cast<std::size_t>(p)] - score_max);
    total += w;
    if (w < 1e-30) continue;
    for (int d = 0; d < latent; ++d) {
      const double v = static_cast<double>(key(p, d));
      sum[static_cast<std::size_t>(d)] += w * v;
      size[static_cast<std::size_t>(d)] += w * std::abs(v);
    }
  }
  const double weight_error = size_max * (roundings.chain * std::exp2(-19.6) + 2 * 0x1p-24) +
                              4 * score_size * 0x1p-22 + std::exp2(-22.4);
  const double relative = 2.1 * weight_error + 0x1p-8 + roundings.sums + 0x1p-19;
  std::vector<Bounded> out;
  for (int d = 0; d < latent; ++d) {
    const double exact = sum[static_cast<std::size_t>(d)] / total;
    const double error = size[static_cast<std::size_t>(d)] / total * relative;
    out.push_back({exact, error + (std::abs(exact) + error) * 0x1p-8});
  }
  return out;
}

// A dot product of `columns` numbers in one chain of k16 steps, whose sum of |w x| is `size`; then half a
// unit of bf16.
inline double head_linear_bound(int columns, double value, double size) {
  const double slack = (columns + 31) / 32 * 2 * std::exp2(-19.6) * size;
  return slack + (std::abs(value) + slack) * 0x1p-8;
}

// A normed number: 3 + 1 + 5 roundings of a piece's squares and one a piece (at most 32), half of them behind
// the root; then mean, epsilon, root, reciprocals and two products. Behind it half a unit of bf16.
inline double norm_bound(double value) {
  const double slack = 28 * 0x1p-24 * std::abs(value);
  return slack + (std::abs(value) + slack) * 0x1p-8;
}

}  // namespace fourfold::mla
