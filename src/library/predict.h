// A step's or a prompt's predicted time kernel row by kernel row (plan/kernel_time.h), from the launches of
// one rank's program, on GPUs that need not be there.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/program.h"
#include "plan/kernel_floor.h"
#include "plan/kernel_time.h"
#include "plan/link_time.h"

namespace fourfold::library {

struct StepQuestion {
  const backend::Program& program;  // of one rank
  const kernels::Machine& machine;
  backend::Capacity capacity;
  backend::DenseWeights dense = std::nullopt;
  const plan::Product& product;
  plan::Link link = plan::Link::pcie5;
  int ranks = 1;
  int expert_count = 0;        // of the whole model; 0: it has none
  double parts_an_expert = 1;  // a whole one is so many of this program's parts
  int users = 1;
  double context = 0;  // tokens of each user before the step
  int drafts = 0;
  double acceptance = 0;
  int prompt = 0;  // tokens of a prompt, 0: none
};

struct PredictedRow {
  std::string what;    // verification or plain step, drafts, prompt
  std::string kernel;  // its row
  std::string part;    // of an MLP: gate_up or down; else empty
  int count = 0;
  double weight_bytes = 0;
  plan::Range us;  // of all of them
  double floor_us = 0;
  double memory_us = 0, tensor_us = 0;  // of the floors: which is the longer one
};

struct Prediction {
  std::vector<PredictedRow> rows;
  // Of the verification, or the plain step: its kernels, what small SMs cost, sums between ranks; then
  // drafts.
  std::vector<plan::Estimate> lines;
  plan::Range step_us;          // all lines
  plan::Range alone_us;         // of the verification, or the plain step, what a rank does without the others
  plan::Range prompt_alone_us;  // of a prompt, without the others; 0: none was asked for
  std::vector<plan::Estimate> prompt_sums;  // between its ranks
  plan::Range prompt_us;                    // both
  double tokens = 1;                        // of a user and step
  // Of the verification, or the plain step:
  int kernels = 0;
  int apart = 0;             // of its boundaries: plan::boundaries_apart
  int sums = 0;              // between GPUs
  double sum_row_bytes = 0;  // of a row of one of them
  plan::SumWay way = plan::SumWay::one_shot;

  plan::Range tokens_per_s(int users) const {
    return {1e6 * users * tokens / step_us.high, 1e6 * users * tokens / step_us.low};
  }
};

// Rows of a prompt that run together, as `bench model` has them.
inline constexpr int kPromptRows = 2048;
inline constexpr int kPredictRowsMost = 512;  // decode rows of a step; the most that were compared: 384

// Refuses what the model was never held against.
Prediction predict(const StepQuestion& question);

// Steps of one row each for so many users, without drafts: for comparing.
std::vector<plan::Range> predict_users(const StepQuestion& question, const std::vector<int>& users);

// Of one pass on a chip that was measured, in microseconds: for tests.
double work_us(const std::vector<plan::KernelWork>& work, const plan::ChipRates& chip);

}  // namespace fourfold::library
