// The meaning of the ops that look at one row alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/program.h"
#include "backend/reference/rows.h"
#include "base/fp8_rows.h"

namespace fourfold::backend::reference {

// A matrix in f32 with what its inputs become.
struct Weight {
  Rows rows;
  InputFormat input = InputFormat::f32;
  Nvfp4InputScale input_scale{1, 1};           // of FP4
  std::optional<Fp8RowFactor> fp8_scale = {};  // none: every row has its own
};

// Reads every element. Throws bad_checkpoint when W4A4 is asked of a matrix without an input scale.
Weight expand(const MatrixUse& use);

// Where a matrix's input comes from: rows that were stored, or the activation inside an expert.
enum class InputOf { rows, expert };

// The row as the matrix sees it.
std::vector<float> rounded_input(const Weight& weight, Role role, std::span<const float> in,
                                 InputOf of = InputOf::rows);

// out = W in + bias; an empty bias is none.
void linear(const Weight& weight, Role role, std::span<const float> in, std::span<float> out,
            InputOf of = InputOf::rows, std::span<const float> bias = {});
void rms_norm(std::span<const float> in, std::span<const float> weight, bool adds_one, double epsilon,
              std::span<float> out);
void swiglu(std::span<const float> gate, std::span<const float> up, std::span<float> out);

// Rotates the pairs (j, j + n) of a head in place; n = inverse_frequency.size().
void rotate(const Rope& rope, std::int64_t position, std::span<float> head);
// An empty weight: no norm.
void head_norm_rope(const HeadNormRope& op, const Rope& rope, std::span<const float> weight,
                    std::int64_t position, std::span<const float> in, std::span<float> out);
void head_linear(const HeadLinear& op, const Weight& weight, std::span<const float> in, std::span<float> out);
void head_gate(std::int64_t head_dim, std::span<const float> in, std::span<const float> gate,
               std::span<float> out);
void gated_head_norm(GateKind kind, double epsilon, std::span<const float> in, std::span<const float> gate,
                     std::span<const float> weight, std::span<float> out);

}  // namespace fourfold::backend::reference
