// The decision record of a step: which kernels it runs with, for people.
#pragma once

#include <string>
#include <vector>

namespace fourfold::backend {

struct StepPart {
  std::string what;                  // "embedding", "layers 0-2, 4-6", "head"
  int layer_count = 0;               // with these kernels; 0: no layer
  std::vector<std::string> kernels;  // in order; rows by their names
};
struct StepDecision {
  std::string shape;  // "1 generated row of 1 sequence, 1 with logits"
  bool is_recorded = false;
  int kernel_count = 0;
  std::vector<StepPart> parts;
  std::string text() const;  // lines
};

}  // namespace fourfold::backend
