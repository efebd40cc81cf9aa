// Fills a table of kernels for one kind of lanes; included by the one source of each instruction set. Nothing
// here may be a function that is not a template over the lanes: the linker keeps one copy of those, and it
// could be the one with instructions this CPU lacks.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/input_lanes.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiply.h"

namespace fourfold::cpu {

template <class L>
constexpr Kernels make_table() {
  return {.isa = L::isa,
          .multiply_tiles = {},
          .multiply_codes = {multiply_codes<L, 1>, multiply_codes<L, 2>, multiply_codes<L, 3>},
          .round_row = round_row<L>,
          .make_two_plane_row = make_two_plane_row<L>,
          .block_maxima = block_maxima<L>,
          .make_one_plane_row = make_one_plane_row<L>,
          .multiply_bf16 = multiply_floats<L, Bf16Columns<L>>,
          .multiply_e4m3 = multiply_floats<L, E4m3Columns<L>>,
          .multiply_f32 = multiply_floats<L, F32Columns<L>>,
          .arrange_queries = arrange_queries<L>,
          .attend = attend<L>,
          .merge_run = merge_run<L>,
          .delta_rule = delta_rule<L>,
          .move_anchor = move_anchor<L>,
          .dot = dot<L>,
          .silu_times = silu_times<L>,
          .clamped_silu_times = clamped_silu_times<L>,
          .sigmoid_times = sigmoid_times<L>,
          .add_rows = add_rows<L>,
          .add_scaled = add_scaled<L>,
          .scale_by = scale_by<L>,
          .exponentials = exponentials<L>,
          .convolve = convolve<L>};
}

}  // namespace fourfold::cpu
