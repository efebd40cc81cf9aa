// Silicon probes of the FP4 instruction, for chips that have it: does this chip select scale lanes, ignore
// the scales' sign bit, spread NaN and add up as the model in base/tensor_core.h says? Each probe is a matrix
// so small that every result is one or two instructions of an existing row, f32 as it comes out of the tensor
// core. Until all pass on a chip its native rows stay refused. The probes run on the simulator and on
// Hopper's emulation as well, where they must pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/launch/machine.h"

namespace fourfold::verify {

struct Probe {
  std::string name;  // "scale lanes"
  std::string asks;  // the question in words
  bool passed = false;
  bool decides = true;  // whether native rows depend on it
  std::string detail;   // what was seen: counts, the first difference, or why it did not run
};

std::vector<Probe> run_probes(kernels::Machine& machine, std::uint64_t seed);

// Why native FP4 rows may not run on this chip; empty when every probe that decides has passed.
std::string native_refusal(const std::vector<Probe>& probes);

}  // namespace fourfold::verify
