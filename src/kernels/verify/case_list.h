// Where the list of proofs is put together: names, seeds and costs of its cases.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/verify/cases.h"
#include "kernels/verify/gemm_case.h"
#include "kernels/verify/layer_case.h"
#include "kernels/verify/step_case.h"

namespace fourfold::verify {

// Weight rows times columns times tokens: what both the simulator and the scalar reference take time for.
inline double work(double rows, double columns, double tokens) { return rows * columns * tokens * 1e-6; }

class CaseList {
 public:
  CaseList(const kernels::Machine& machine, const CaseOptions& options)
      : machine_(machine), options_(options) {}

  int variants() const { return options_.quick ? 1 : options_.seeds; }
  bool quick() const { return options_.quick; }
  const kernels::Machine& machine() const { return machine_; }

  // A seed of its own for every case.
  std::uint64_t next_seed();

  void add(Case item);  // unless the options leave it out
  void add_gemm(const GemmCase& test);
  void add_step(const StepCase& test);
  void add_layer(const LayerCase& test);
  std::vector<Case> take() { return std::move(cases_); }

 private:
  const kernels::Machine& machine_;
  const CaseOptions& options_;
  std::uint64_t count_ = 0;
  std::vector<Case> cases_;
};

// Every kernel at the shapes of the 35B and of a rank of four of the 397B, one to 8,192 tokens.
void add_large_cases(CaseList& list);

}  // namespace fourfold::verify
