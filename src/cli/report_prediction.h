// What was predicted for a line of `fourfold bench model`, to stand beside it in a report. The one place that
// knows who predicts.
#pragma once

#include <cstdint>
#include <string>

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

Prediction predict_line(const PredictedLine& line);

}  // namespace fourfold::cli
