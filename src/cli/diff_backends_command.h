// `fourfold diff-backends`: a model's layers on several backends, on the same inputs.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct DiffBackendsOptions {
  std::string model;
  std::string backends = "cpu,sim";  // the first is what the others are held against
  std::string prompt_ids;            // empty: random tokens
  std::uint64_t seed = 1;
  int tokens = 12;                    // random ones
  int generated = 4;                  // of them run one by one
  std::string activations = "w4a16";  // or f32, w4a4, auto: what all backends can
  int threads = 0;
  bool by_op = false;  // also the values inside the layers, where both backends keep them
  bool json = false;
  bool strict = false;
};

int run_diff_backends(const DiffBackendsOptions& options, const Console& console);

}  // namespace fourfold::cli
