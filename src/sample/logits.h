// What is asked of a row of logits or scores before anything is drawn from it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sample/params.h"

namespace fourfold::sample {

struct Scored {
  TokenId id = 0;
  float score = 0;
};

// By score, the lower id first among equals: a total order, so what is kept never depends on an algorithm.
inline bool ranks_before(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

// The `count` best in order of rank, or all there are.
std::vector<Scored> best_tokens(std::span<const float> scores, std::size_t count);

// Throws internal when a logit is NaN or infinite, naming it.
void require_finite(std::span<const float> logits);

}  // namespace fourfold::sample
