// The list of proofs: every row of every kernel a machine has, every operation, whole layers, the kernels
// around the GEMMs. The same function makes the list for the simulator and for a GPU, so the two can be
// compared name by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct CaseOptions {
  int seeds = 4;           // proofs of each row and operation, each with other numbers and shapes
  bool quick = false;      // one operation a row, one seed
  bool large = false;      // shapes of published models, for silicon; a sample of the output is compared
  std::string rows;        // only rows whose name matches this glob; empty: all
  std::uint64_t seed = 1;  // of the first; the others follow
};

// One proof that has not run yet.
struct Case {
  std::string kernel, row, op;
  std::string arch;  // of the machine that the list was made for
  std::uint64_t seed = 0;
  double cost = 1.0;        // relative run time on the simulator
  bool is_step = false;     // of a step kernel
  std::string native_form;  // nvfp4, mxfp4: needs this form of the FP4 instruction; fp8: SM120's of E4M3;
                            // empty: bf16 or none
  std::function<Result(kernels::Machine&, bool bits_exact)> run;
  // What the row writes, for the direct comparison of two machines; empty where only `run` compares.
  std::function<std::vector<std::uint8_t>(kernels::Machine&)> output;
};

// Which of a machine's rows to list.
enum class RowSet {
  all,
  own,  // planned for this chip: leaves out what it shares with SM120, which SM120's list already has
};

std::vector<Case> make_cases(const kernels::Machine& machine, RowSet set, const CaseOptions& options);

// "kernel | row | op" of each case, sorted, each once: what two reports must have in common.
std::vector<std::string> case_names(const std::vector<Case>& cases);

}  // namespace fourfold::verify
