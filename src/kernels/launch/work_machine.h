// A machine that notes what every launch has to do, in numbers for the performance model
// (plan/kernel_work.h). What a kernel finds in tables on the device (tiles of experts, lengths of sequences)
// is told beforehand.
#pragma once

#include <vector>

#include "kernels/launch/counting_machine.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_route/route_params.h"
#include "plan/expected_tiles.h"
#include "plan/kernel_work.h"

namespace fourfold::kernels {

// What the tables of the step on its way would say.
struct StepScene {
  int rows = 1;
  int sequences = 1;
  int sequence_rows = 1;
  double context = 0;  // tokens of each sequence before the step
  plan::Routing routing = plan::Routing::uniform;
};

class WorkMachine final : public CountingMachine {
 public:
  explicit WorkMachine(const Machine& machine) : CountingMachine(machine) {}

  void enter(const StepScene& scene) {
    scene_ = scene;
    work_.clear();
  }
  const std::vector<plan::KernelWork>& work() const { return work_; }

  using CountingMachine::launch;
  void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) override;

 private:
  void note(plan::KernelWork& work, const plan::RowFacts& facts, int blocks, const void* params);
  void note_basic(plan::KernelWork& work, const plan::RowFacts& facts, const void* params);
  void note_route(plan::KernelWork& work, const moe_route::RouteParams& params);
  void note_gemm(plan::KernelWork& work, const plan::RowFacts& facts, const moe::GemmParams& params);
  void note_few(plan::KernelWork& work, const moe_few::FewCall& call);

  StepScene scene_;
  std::vector<plan::KernelWork> work_;
  moe_route::RouteParams route_{};  // the last one's: whose tiles a GEMM reads
};

}  // namespace fourfold::kernels
