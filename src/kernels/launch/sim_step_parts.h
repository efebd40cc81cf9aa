// Which rooms' step kernels each part of the simulator's rows holds.
#pragma once

#include "kernels/attention/rows.h"
#include "kernels/delta/rows.h"
#include "kernels/dense/rows.h"
#include "kernels/launch/sim_step.h"
#include "kernels/sampling/rows.h"
#include "kernels/step/rows.h"

namespace fourfold::kernels {

template <SimPart part>
void define_sim_step_part(SimRows& rows) {
  using plan::Sm120;
  if constexpr (part == SimPart::step_dense) {
    add_sim_step_rows<dense::Rows<Sm120>>(rows.step);
    add_sim_step_rows<step::Rows<Sm120>>(rows.step);
  }
  if constexpr (part == SimPart::step_delta) add_sim_step_rows<delta::Rows<Sm120>>(rows.step);
  if constexpr (part == SimPart::step_attention) add_sim_step_rows<attention::Rows<Sm120>>(rows.step);
  if constexpr (part == SimPart::step_sampling) add_sim_step_rows<sampling::Rows<Sm120>>(rows.step);
  if constexpr (part == SimPart::step_hopper) add_sim_step_rows<attention::HopperRows<plan::Sm90>>(rows.step);
}

}  // namespace fourfold::kernels
