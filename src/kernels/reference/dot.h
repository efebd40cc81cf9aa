// The meaning of a dot product, twice: bit for bit as the tensor cores add it up, and in double precision
// with the error bound that follows from their rounding. Plain scalar loops over the checkpoint's form of the
// weights, so nothing of the record layout is shared with the kernels under test.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"
#include "base/tensor_core.h"

namespace fourfold::reference {

// A weight matrix of any format: FP4 as codes and the byte of each block's scale, the wider ones as values.
struct Weights {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int columns_per_scale = 16;
  std::vector<E2m1> codes;                // [rows, columns]
  std::vector<std::uint8_t> scale_bytes;  // [rows, columns / columns_per_scale], E4M3 or UE8M0
  std::vector<Bf16> values;               // [rows, columns] of a bf16 or fp8 matrix; then no codes and scales
  bool is_mxfp4() const { return columns_per_scale == 32; }
  bool is_dense() const { return !values.empty(); }
};
Weights weights_of(const Nvfp4View& matrix);
Weights weights_of(const Mxfp4View& matrix);

// How the sum is cut: prefill adds straight through, decode in segments of 512 columns that are added in
// order.
enum class Order { prefill, decode };

struct Dot {
  float bits;        // the sum as the kernels must give it, before any global scale
  double value;      // the sum in double precision, before any global scale
  double magnitude;  // sum of the absolute products
  double bound;      // how far `bits` may lie from `value`
};

// Row of the weights times a bf16 token (plain column order). `bits` carries the factor the 16-bit decode
// leaves out (2^-8 for NVFP4, 2^-62 for MXFP4, none for bf16 and fp8); value, magnitude and bound do not.
Dot dot_w4a16(const Weights& weights, std::int64_t row, const Bf16* token, Order order);

// Row of the weights times a token quantised in the same format (one row of a matrix, without its global
// scale).
Dot dot_w4a4(const Weights& weights, std::int64_t row, const Weights& tokens, std::int64_t token,
             Order order);

// Row of an fp8 matrix times a token in E4M3 codes (plain column order): sums of at most 128 columns in the
// tensor core, added in f32. Where 128 does not divide K, the first sum is of 64 columns. fraction_bits: what
// the tensor core keeps of a sum (base/tensor_core.h).
Dot dot_w8a8(const Weights& weights, std::int64_t row, const E4m3* token,
             int fraction_bits = tensor_core::kWgmmaFp8Bits);

// The worst rounding of a chain of `steps` tensor-core sums whose absolute products sum to `magnitude`, plus
// the final additions of `segments` partial sums. bf16: 17 addends truncated below 2^(E-25), one rounding
// toward zero. FP4: five addends truncated below 2^(E-35), where E may be the exponent of a step's largest
// scale product even if its codes are zero; scale_sum adds those products over the steps.
double chain_bound_bf16(double magnitude, std::int64_t steps, std::int64_t segments);
double chain_bound_fp4(double magnitude, std::int64_t steps, std::int64_t segments, double scale_sum);

}  // namespace fourfold::reference
