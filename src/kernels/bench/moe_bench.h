// Times the whole MoE layer on a GPU: random weights at the true shape, rotated routings so that weights come
// from memory, graphs, warm-up; the memory ceiling is measured in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/moe_layer/moe_layer.h"

namespace fourfold::bench {

enum class Routing { uniform, zipf, same };

struct MoeBenchOptions {
  std::string shape_name;
  moe_layer::Shape shape;
  WeightFormat format = WeightFormat::nvfp4;
  moe_layer::Activations activations = moe_layer::Activations::w4a16;
  std::vector<int> tokens;
  Routing routing = Routing::uniform;
  int routings = 16;
  int rounds = 11;
  bool parts = false;             // also time each kernel of the layer alone
  int prefill_from = 256;         // token counts from here on are timed as prompts
  std::vector<std::string> rows;  // globs of rows to time instead of the chosen ones
  std::uint64_t seed = 1;
};

struct MoeBenchLine {
  std::string shape, routing, role, rows, part;
  int tokens = 0;
  double microseconds = 0.0;  // median
  double spread = 0.0;        // (third quartile - first) / median
  double gbps = 0.0;
  double share = 0.0;  // of the measured ceiling
  double tflops = 0.0;
  double experts = 0.0;  // distinct experts per routing
};

struct MoeBenchReport {
  double ceiling_gbps = 0.0;
  std::vector<MoeBenchLine> lines;
};

// The machine must be a GPU; `stream` is its stream.
MoeBenchReport bench_moe(kernels::Machine& machine, void* stream, const MoeBenchOptions& options);

}  // namespace fourfold::bench
