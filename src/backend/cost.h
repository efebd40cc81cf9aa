// What a step must move and compute, from the program alone: the floor that measured times are held against.
// Activations are left out; they stay in caches.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/program.h"

namespace fourfold::backend {

struct StepShape {
  std::int64_t sequence_count = 1;
  std::int64_t row_count = 1;
  std::int64_t logits_row_count = 1;
  double context = 0;  // positions a row attends to, on average
  double experts = 0;  // that the rows of a layer use together, on average, where that is known; 0: estimated
};

struct Cost {
  double weight_bytes = 0;  // as the checkpoint stores them, each matrix once a step
  double state_bytes = 0;   // KV cache and recurrent state, read and written
  double flops = 0;         // two for each multiplication with its addition; elementwise work is left out

  Cost& operator+=(const Cost& other) {
    weight_bytes += other.weight_bytes, state_bytes += other.state_bytes, flops += other.flops;
    return *this;
  }
};

// Experts of a set that `rows` rows use together if every choice is equally likely: E (1 - (1 - k/E)^rows).
double spread_experts(double experts, double chosen, double rows);

// Routed experts are counted as many as the shape says, or as if every choice were equally likely. Real
// routing repeats itself more, so with many rows this is an upper estimate.
Cost cost_of(const Program& program, const Op& op, const StepShape& shape);
Cost cost_of(const Program& program, Pass pass, const StepShape& shape);

}  // namespace fourfold::backend
