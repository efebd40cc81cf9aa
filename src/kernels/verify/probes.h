// Silicon probes of the tensor cores, for chips with the FP4 instruction: does this chip select scale lanes,
// ignore the scales' sign bit, spread NaN and add up as the model in base/tensor_core.h says? Each probe is a
// matrix so small that every result is one or a few instructions of an existing row, f32 as it comes out of
// the tensor core. They run on the simulator and on Hopper's emulation as well, where every bit must agree.
//
// A chip's answer has three steps, for each form of the instruction by itself:
//  - every bit as the model says: native rows are proved bit for bit;
//  - other bits, all of them within the bound that the rows are proved by: the rows run, and nobody says "bit
//    for bit" of them;
//  - anything beyond it: the rows of that form are refused and W4A16 remains. Other rows are left alone.
//
// The bound is reference::chain_bound_fp4, from the instruction's arithmetic alone: the 64 products of a step
// and their four block sums are exact, so all that is lost is what the alignment of five addends cuts and one
// rounding to f32 a step. A chip that rounds to nearest where the model cuts is within it; one that takes
// another lane's scale, or keeps fewer bits than f32 has, is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/launch/machine.h"

namespace fourfold::verify {

enum class Outcome { same_bits, within_bound, beyond_bound };
std::string_view outcome_name(Outcome outcome);  // "within the bound"

struct Probe {
  std::string name;  // "scale lanes"
  std::string asks;  // the question in words
  std::string form;  // whose arithmetic it asks about: nvfp4, mxfp4, bf16 or fp8
  Outcome outcome = Outcome::beyond_bound;
  std::string detail;  // what was seen: counts, the first difference, or why it did not run
};

std::vector<Probe> run_probes(kernels::Machine& machine, std::uint64_t seed);

// What the probes of one form say together. Nothing asked: nothing refused, nothing withdrawn.
struct Arithmetic {
  std::string refusal;  // why native rows of this form may not run here, and what remains; empty: they may
  std::string notice;   // why its bits are not promised though they run; empty: they are
};
Arithmetic arithmetic_of(const std::vector<Probe>& probes, std::string_view form);

}  // namespace fourfold::verify
