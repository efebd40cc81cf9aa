// `fourfold plan --model MODEL`: what a model takes of a GPU's memory, before anything is loaded; what fits.
// With --gpu also what a step would take there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/step/ways.h"
#include "cli/console.h"
#include "library/plan_step.h"

namespace fourfold::cli {

struct PlanModelOptions {
  std::string model;                        // or a shape: 397b, 122b, 35b
  std::string gpu;                          // a product that need not be there: rtx-pro-6000
  int ranks = 1;                            // GPUs that share the model
  std::string experts = "auto";             // tp: cut by column; ep: given out whole
  int nodes = 0;                            // machines with a rank each; 0: one machine
  std::string link = "pcie5";               // between GPUs, or pcie4; between machines 10gbe, 25gbe or cx7
  int users = 1;                            // of the predicted step
  std::int64_t context = 0;                 // tokens of each before it
  int drafts = 0;                           // of each
  double acceptance = 0.7;                  // chance that a draft stands when those before it do
  bool predict = false;                     // kernel row by kernel row, and no memory plan
  int prompt = 0;                           // tokens of a prompt to predict, too
  std::string arch;                         // empty: the GPU that is there
  std::string kv = "auto";                  // keys and values: bf16, fp8 or as the activations are
  std::string dense = "keep";               // or fp8, nvfp4: as quantised at load
  std::string activations = "auto";         // as a model is served there, or w4a16, w4a4-prefill, w4a4
  std::optional<std::int64_t> max_context;  // tokens of a sequence; else the model's limit
  std::int64_t max_sequences = 1;
  std::optional<double> memory_fraction;
  std::optional<double> memory_gb;  // of a GPU that is not there
  bool json = false;
  bool strict = false;
};

// The step alone, whether or not the model fits. Needs --gpu.
library::StepAnswer predict_model_step(const PlanModelOptions& options, const Console& console);

// What such steps launch, in numbers: for tests. Needs --gpu.
std::vector<std::vector<plan::KernelWork>> model_step_work(const PlanModelOptions& options,
                                                           std::span<const backend::StepRows> steps,
                                                           const Console& console,
                                                           const backend::cuda::StepWays& ways = {});

// kMiss when it does not fit.
int run_plan_model(const PlanModelOptions& options, const Console& console);

}  // namespace fourfold::cli
