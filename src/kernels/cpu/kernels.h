// The kernels of one instruction set, as a table. Every table gives the same bits, with one exception: tiles.
#pragma once

#include <cstdint>

#include "kernels/cpu/input_rows.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/jobs.h"

namespace fourfold::cpu {

struct Kernels {
  Isa isa;
  // For inputs in the form bf16_tiles; absent where the CPU has no tiles. Used for every number of tokens or
  // for none, because they add in an order of their own (tiles_amx.h).
  struct Tiles {
    void (*nvfp4)(const MultiplyJob&) = nullptr;
    void (*bf16)(const MultiplyJob&) = nullptr;
    void (*e4m3)(const MultiplyJob&) = nullptr;
  };
  Tiles multiply_tiles;
  void (*multiply_codes[3])(const MultiplyJob&);  // FP4 weights, by planes of the input - 1
  // input_lanes.h; make_inputs puts them together.
  void (*round_row)(const float* values, std::int64_t columns, std::uint8_t* out);
  void (*make_two_plane_row)(const float* values, std::int64_t columns, std::uint8_t* out);
  void (*block_maxima)(const float* values, std::int64_t columns, float* out);
  void (*make_one_plane_row)(const float* values, std::int64_t columns, const float* multipliers,
                             const float* scales, std::uint8_t* out);
  void (*multiply_bf16)(const MultiplyJob&);
  void (*multiply_e4m3)(const MultiplyJob&);
  void (*multiply_f32)(const MultiplyJob&);

  void (*arrange_queries)(const float* from, std::int64_t query_count, std::int64_t padded_dim, float* to);
  void (*attend)(const AttendJob&);
  void (*merge_run)(const Softmax& before, const Softmax& run, std::int64_t query_count,
                    std::int64_t padded_dim);
  void (*delta_rule)(const DeltaJob&, float* scratch);
  void (*move_anchor)(const MoveAnchorJob&);

  // functions.h
  float (*dot)(const float* a, const float* b, std::int64_t count);
  void (*silu_times)(const float* gate, const float* up, std::int64_t count, float* out);
  void (*clamped_silu_times)(const float* gate, const float* up, float alpha, float limit, std::int64_t count,
                             float* out);
  void (*sigmoid_times)(const float* gate, const float* x, std::int64_t count, float* out);
  void (*add_rows)(const float* a, const float* b, std::int64_t count, float* out);
  void (*add_scaled)(const float* a, const float* b, float factor, std::int64_t count, float* out);
  void (*scale_by)(const float* x, float factor, const float* w, float w_add, std::int64_t count, float* out);
  void (*exponentials)(const float* x, std::int64_t count, float* out);
  void (*convolve)(const float* const* rows, const float* weights, std::int64_t weight_stride,
                   std::int64_t taps, std::int64_t count, float* out);
};

// make_input_row with these kernels: the same bits, faster.
void make_input_row(const Kernels& kernels, InputForm form, const float* values, std::int64_t columns,
                    const Nvfp4InputScale& input_scale, std::uint8_t* out);

// `isa` must be one of available_isas().
const Kernels& kernels_of(Isa isa);

}  // namespace fourfold::cpu
