// Which kernels a step of one shape runs with, noted when it is run for the first time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/step/runner.h"
#include "backend/cuda/step/step_decision.h"

namespace fourfold::backend::cuda {

// Listens to a machine's launches while it lives.
class LaunchNotes {
 public:
  explicit LaunchNotes(kernels::Machine& machine);
  ~LaunchNotes() { machine_.listen(nullptr); }
  LaunchNotes(const LaunchNotes&) = delete;
  LaunchNotes& operator=(const LaunchNotes&) = delete;

  // What was launched since the last cut: the embedding (index 0) or layer index - 1.
  void cut(int index);
  // The rest is the head; a draft pass, which is never cut, is one part. recording: what was made of the
  // launches, null where they were run one by one.
  StepDecision decision(const PassShape& shape, const kernels::Recording* recording);

 private:
  struct Part {
    int index;
    std::vector<std::string> kernels;
  };
  kernels::Machine& machine_;
  std::vector<Part> parts_;
  std::vector<std::string> kernels_;  // since the last cut
};

}  // namespace fourfold::backend::cuda
