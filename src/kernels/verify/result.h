// One line of the proof's table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fourfold::verify {

struct Result {
  std::string kernel;
  std::string row;  // name of the row; kernels without rows repeat the kernel
  std::string op;   // what was asked of it: gate_up, down, plain; the kind of layer; the form of tokens
  std::string machine;
  std::string shape;
  std::uint64_t seed = 0;
  double max_error = 0.0;           // largest distance from the double-precision reference
  double bound = 0.0;               // what the arithmetic allows at the place where error / bound is largest
  double worst_ratio = 0.0;         // largest error / bound
  std::int64_t compared = 0;        // values
  std::int64_t bit_mismatches = 0;  // values whose bits differ from the exact scalar model
  bool exact = true;                // whether the bits are required to agree on this machine
  std::string failure;              // a fault or an exception, in its own words; empty if the kernel ran
  std::string refused;              // why the row may not run on this chip; empty if it may

  bool passed() const {
    return failure.empty() && refused.empty() && compared > 0 && worst_ratio <= 1.0 &&
           (!exact || bit_mismatches == 0);
  }
  std::string_view verdict() const { return !refused.empty() ? "refused" : passed() ? "pass" : "miss"; }
  // Takes one value into account.
  void compare(double actual, double expected, double allowed, bool same_bits) {
    const double error = actual > expected ? actual - expected : expected - actual;
    // NaN must never pass: error != error makes the ratio infinite.
    const double ratio = error == 0.0 ? 0.0 : (error == error && allowed > 0.0 ? error / allowed : 1e300);
    if (!(ratio <= worst_ratio)) {
      worst_ratio = ratio;
      max_error = error;
      bound = allowed;
    }
    ++compared;
    bit_mismatches += !same_bits;
  }
};

}  // namespace fourfold::verify
