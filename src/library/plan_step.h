// What `fourfold plan --gpu` says of a step beside its predicted time: its bytes, and experts given out whole
// or by column.
#pragma once

#include <vector>

#include "library/predict.h"

namespace fourfold::library {

// By column against by expert, one line for each number of users.
struct ShardingLine {
  int users;
  double column_gb, expert_gb;  // of routed experts, that the busiest GPU reads
  plan::Range column_us, expert_us;
};

struct StepAnswer {
  Prediction step;
  double bytes = 0;                     // that one GPU reads and writes in the verification or the plain step
  std::vector<ShardingLine> shardings;  // with several ranks and experts
};

StepAnswer answer_step(const StepQuestion& question);

}  // namespace fourfold::library
