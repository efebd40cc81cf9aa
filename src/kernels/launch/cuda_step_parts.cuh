// Which rooms' step kernels each part of a chip's rows holds.
#pragma once

#include "kernels/all_reduce/rows.h"
#include "kernels/attention/rows.h"
#include "kernels/delta/rows.h"
#include "kernels/dense/rows.h"
#include "kernels/launch/cuda_step.cuh"
#include "kernels/moe/chips.h"
#include "kernels/sampling/rows.h"
#include "kernels/step/rows.h"

namespace fourfold::kernels {

template <class Chip, Part part>
void define_step_part(CudaRows& rows) {
  using Shared = typename Chip::Shared;
  if constexpr (part == Part::step_dense) {
    add_step_rows<dense::Rows<Shared>>(rows.step);
    add_step_rows<step::Rows<Shared>>(rows.step);
  }
  if constexpr (part == Part::step_delta) add_step_rows<delta::Rows<typename Chip::Own>>(rows.step);
  if constexpr (part == Part::step_attention) add_step_rows<attention::Rows<Shared>>(rows.step);
  if constexpr (part == Part::step_sampling) add_step_rows<sampling::Rows<Shared>>(rows.step);
  if constexpr (part == Part::step_all_reduce) add_step_rows<all_reduce::Rows<Shared>>(rows.step);
  if constexpr (part == Part::step_hopper)
    add_step_rows<attention::HopperRows<typename Chip::Own>>(rows.step);
}

}  // namespace fourfold::kernels
