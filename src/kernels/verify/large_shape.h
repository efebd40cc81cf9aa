// What a large proof needs to know of the two models whose shapes it takes: sizes of a layer, and which of
// many outputs to compare.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace fourfold::verify {

struct LargeShape {
  int hidden;
  int projections;  // rows of the matrix into DeltaNet: queries, keys, values, z, beta and decay
  int mixed;        // columns of the matrix back from it
  int neurons;      // of the shared expert
  int vocabulary;   // of the head
  int heads, kv_heads;
  int key_heads, values_per_key;
  int prompt_rows;
};
inline constexpr LargeShape kLargeShapes[] = {
    {2'048, 12'352, 4'096, 512, 248'320, 16, 2, 16, 2, 8'192},  // Qwen3.5-35B-A3B
    {4'096, 5'152, 2'048, 256, 62'080, 8, 1, 4, 4, 1'000},      // a rank of four of Qwen3.5-397B-A17B
};

// All of `count` places, or `most` of them with the first and the last; in order, each once.
std::vector<int> sample_places(Random& random, std::int64_t count, int most);

}  // namespace fourfold::verify
