// `fourfold verify`: every row of every kernel against the scalar reference, on the simulator, a GPU, or
// both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/console.h"

namespace fourfold::sim {
class Device;
}
namespace fourfold::verify {
struct Target;
}

namespace fourfold::cli {

struct VerifyOptions {
  std::string device = "sim";  // sim, cuda, all
  bool quick = false;
  bool large = false;                 // shapes of published models; on a GPU only
  bool json = false;                  // the report on stdout instead of the table
  std::string report;                 // file for the JSON
  std::optional<int> seeds;           // proofs a row and operation; default 4
  std::string rows;                   // glob
  std::optional<std::uint64_t> seed;  // of the first proof; default: from the clock, and printed
  int gpu = 0;
  bool strict = false;
  // For tests: sees every simulated device before its proof runs.
  std::function<void(sim::Device&)> prepare_simulator;
  // For tests: a machine that is taken for the GPU.
  std::shared_ptr<const verify::Target> stand_in;
};

int run_verify(const VerifyOptions& options, const Console& console);

}  // namespace fourfold::cli
