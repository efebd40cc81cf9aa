// The simulator's rows of the all-reduce.
#include "kernels/all_reduce/rows.h"
#include "kernels/launch/sim_step.h"

namespace fourfold::kernels {
template <>
void add_sim_part<SimPart::step_all_reduce>(SimRows& rows) {
  add_sim_step_rows<all_reduce::Rows<plan::Sm120>>(rows.step);
}
}  // namespace fourfold::kernels
