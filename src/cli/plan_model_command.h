// `fourfold plan --model MODEL`: what a model takes of a GPU's memory, before anything is loaded; what fits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct PlanModelOptions {
  std::string model;
  std::string arch;                         // empty: the GPU that is there
  std::string kv = "auto";                  // keys and values: bf16, fp8 or as the activations are
  std::string dense = "keep";               // or fp8, nvfp4: as quantised at load
  std::optional<std::int64_t> max_context;  // tokens of a sequence; else the model's limit
  std::int64_t max_sequences = 1;
  std::optional<double> memory_fraction;
  std::optional<double> memory_gb;  // of a GPU that is not there
  bool json = false;
  bool strict = false;
};

// kMiss when it does not fit.
int run_plan_model(const PlanModelOptions& options, const Console& console);

}  // namespace fourfold::cli
