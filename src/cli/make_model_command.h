// `fourfold make-model`: a valid checkpoint of random numbers with a tokenizer, for tests and benches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct MakeModelOptions {
  std::string out;
  std::string shape = "tiny";
  std::string format = "modelopt";
  std::uint64_t seed = 0;
  std::optional<int> layers;  // else as the shape has
  bool sparse = false;
};

int run_make_model(const MakeModelOptions& options, const Console& console);

}  // namespace fourfold::cli
