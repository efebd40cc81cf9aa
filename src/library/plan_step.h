// A step's predicted time on GPUs that need not be there, from the program of one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/program.h"
#include "plan/step_time.h"

namespace fourfold::library {

struct StepQuestion {
  const backend::Program& program;  // of one rank
  const kernels::Machine& machine;
  backend::Capacity capacity;
  backend::DenseWeights dense = std::nullopt;
  const plan::Product& product;
  plan::Link link = plan::Link::pcie5;
  int ranks = 1;
  bool by_expert = false;  // how the program was sharded
  int expert_count = 0;    // of the whole model; 0: it has none
  int users = 1;
  double context = 0;  // tokens of each user before the step
  int drafts = 0;
  double acceptance = 0;
};

// By column against by expert, one line for each number of users.
struct ShardingLine {
  int users;
  double column_gb, expert_gb;  // of routed experts, that the busiest GPU reads
  plan::Range column_us, expert_us;
};

struct StepAnswer {
  plan::StepWork work;  // of the verification, or the plain step
  std::vector<plan::Estimate> lines;
  plan::Range us;
  double tokens = 1;  // of a user
  plan::SumWay way = plan::SumWay::one_shot;
  std::vector<ShardingLine> shardings;  // with several ranks and experts
  plan::Range tokens_per_s(int users) const {
    return {1e6 * users * tokens / us.high, 1e6 * users * tokens / us.low};
  }
};

StepAnswer predict_step(const StepQuestion& question);

}  // namespace fourfold::library
