// What was predicted for a line of `fourfold bench model` or `bench moe`, to stand beside it in a report. The
// one place that knows who predicts.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/report_device.h"

namespace fourfold::cli {

struct PredictedLine {
  std::string gpu;    // as the driver calls it
  std::string shape;  // 35b
  std::string dense;  // bf16, fp8, nvfp4
  std::string what;   // decode or prompt
  int users = 1;
  std::int64_t context = 0;  // of a prompt: its tokens
};

struct Prediction {
  double low_ms = 0, high_ms = 0;  // of a step or a prompt
  std::string by;                  // what says so, as it can be typed
  std::string none;                // why there is no prediction; empty: there is one
};

// Beside a measured line: [low, high] in `unit`s of a millisecond and who says so, or null and why.
void add_prediction(const Prediction& prediction, const char* name, double unit, boost::json::object& line);

Prediction predict_line(const PredictedLine& line);

// A line of `bench moe`, as its table has it.
struct PredictedLayer {
  std::string shape;   // 35b
  std::string format;  // nvfp4
  std::string activations = "w4a16";
  std::string routing;  // uniform, zipf or same
  std::string role;     // decode or prefill
  int tokens = 1;
};

// One for each; in milliseconds, too.
std::vector<Prediction> predict_layers(const ReportDevice& device, const std::vector<PredictedLayer>& lines);

}  // namespace fourfold::cli
