// What a verification found, as a page and as JSON.
#pragma once

#include <string>
#include <vector>

#include "kernels/verify/result.h"
#include "kernels/verify/runner.h"

namespace fourfold::cli {

struct ProbedDevice {
  std::string machine;
  std::vector<verify::Probe> probes;
};

struct VerifyReport {
  std::string device;  // as asked for: sim, cuda, all
  std::vector<std::string> machines;
  std::uint64_t seed = 0;
  double seconds = 0.0;
  std::vector<verify::Result> results;
  std::vector<ProbedDevice> probed;
  std::vector<verify::MachineComparison> comparisons;  // simulator against silicon, byte for byte
  std::vector<std::string> notices;

  bool passed() const;
};

// A line per row, operation and machine: the worst of its seeds.
std::string report_text(const VerifyReport& report);
std::string report_json(const VerifyReport& report);

}  // namespace fourfold::cli
