// The proof of one row of a step kernel (launch/row.h): fresh random inputs, a launch on any machine,
// every value it leaves against a scalar reference. Kernels whose order of operations is fixed in plain f32
// are also compared bit for bit with the host; the others (softmax, DeltaNet) by their bound, and bit for bit
// between two machines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct StepCase {
  plan::RowFacts row;
  std::string op;
  int variant = 0;  // 0: small and ragged; the others: other shapes
  std::uint64_t seed = 1;
  // Shapes of published models, for silicon: variant 0 is the 35B, 1 a rank of four of the 397B. Of the
  // output a sample is compared.
  bool large = false;
};

// What a row can be asked for; at least one, also for a row that has no proof yet: its proof fails.
std::vector<std::string> step_ops(const plan::RowFacts& row);
double step_cost(const StepCase& test);

// bits_exact: whether this machine's tensor cores are known exactly.
Result run_step_case(kernels::Machine& machine, const StepCase& test, bool bits_exact);

// What the row writes for this case, for the comparison of two machines. Throws.
std::vector<std::uint8_t> step_output(kernels::Machine& machine, const StepCase& test);

}  // namespace fourfold::verify
