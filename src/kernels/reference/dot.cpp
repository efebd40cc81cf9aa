#include "kernels/reference/dot.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/wide_operands.h"
#include "kernels/moe/tables.h"
#include "plan/record_size.h"

namespace fourfold::reference {
namespace {

using tensor_core::Operand;

constexpr std::int64_t kStepColumns = plan::kRecordColumns;  // four k16 steps, or one FP4 step

template <class View>
Weights copy_of(const View& matrix, int columns_per_scale) {
  Weights weights;
  weights.rows = matrix.rows;
  weights.columns = matrix.columns;
  weights.columns_per_scale = columns_per_scale;
  weights.codes.reserve(static_cast<std::size_t>(matrix.rows * matrix.columns));
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; ++column)
      weights.codes.push_back(matrix.code(row, column));
  for (const auto scale : matrix.scales) weights.scale_bytes.push_back(scale.bits);
  return weights;
}

// Asked for every weight of every token, 16 or 32 columns a scale: shifts and a table, where divisions and
// decoding took most of a proof's time.
std::uint8_t scale_byte(const Weights& weights, std::int64_t row, std::int64_t column) {
  const int shift = std::countr_zero(static_cast<unsigned>(weights.columns_per_scale));
  return weights.scale_bytes[static_cast<std::size_t>(row * (weights.columns >> shift) + (column >> shift))];
}
struct ScaleValues {
  ScaleValues() {
    for (int byte = 0; byte < 256; ++byte) {
      const auto bits = static_cast<std::uint8_t>(byte);
      e4m3[bits] = static_cast<double>(to_float(E4m3{bits}));
      ue8m0[bits] = std::ldexp(1.0, byte - 127);
    }
  }
  std::array<double, 256> e4m3, ue8m0;
};
double scale_value(const Weights& weights, std::int64_t row, std::int64_t column) {
  static const ScaleValues values;
  return (weights.is_mxfp4() ? values.ue8m0 : values.e4m3)[scale_byte(weights, row, column)];
}
constexpr auto kCodeValues = [] {
  std::array<double, 16> values{};
  for (std::uint8_t code = 0; code < 16; ++code) values[code] = static_cast<double>(to_float(E2m1{code}));
  return values;
}();
double code_value(const Weights& weights, std::int64_t row, std::int64_t column) {
  return kCodeValues[weights.codes[static_cast<std::size_t>(row * weights.columns + column)].bits & 15u];
}

double weight_value(const Weights& weights, std::int64_t row, std::int64_t column) {
  if (weights.is_dense())
    return to_float(weights.values[static_cast<std::size_t>(row * weights.columns + column)]);
  return code_value(weights, row, column) * scale_value(weights, row, column);
}

// Sixty-four columns of a row: the weights, and what they are decoded to, exact in bf16: code * scale * 2^-8
// (NVFP4) or * 2^-62 (MXFP4).
struct RecordColumns {
  double value[kStepColumns];
  std::uint16_t decoded[kStepColumns];
};
void decode_columns(const Weights& weights, std::int64_t row, std::int64_t first, RecordColumns& columns) {
  const std::int64_t block = weights.is_dense() ? kStepColumns : weights.columns_per_scale;
  const double factor = weights.is_dense() ? 1.0 : weights.is_mxfp4() ? 0x1p-62 : 0x1p-8;
  bool is_exact = true;
  for (std::int64_t begin = 0; begin < kStepColumns; begin += block) {
    const double scale = weights.is_dense() ? 1.0 : scale_value(weights, row, first + begin);
    for (std::int64_t c = begin; c < begin + block; ++c) {
      const double number =
          weights.is_dense() ? weight_value(weights, row, first + c) : code_value(weights, row, first + c);
      columns.value[c] = number * scale;
      const double exact = columns.value[c] * factor;
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
      // Without a branch: this and the sums below are a third of a proof.
      is_exact &= ((bits & 0xFFFFu) == 0) & (static_cast<double>(static_cast<float>(exact)) == exact);
      columns.decoded[c] = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  check(is_exact, "decoded weights are exact in bf16", row, first);
}

// A record's columns as the operands of its four k16 steps, each eight lanes' worth of four neighbours.
void set_steps(tensor_core::WideOperands (&steps)[4], const std::uint16_t* bits) {
  for (int step = 0; step < 4; ++step) {
    std::uint16_t of_step[16];
    for (int lane = 0; lane < 4; ++lane)
      std::memcpy(of_step + 4 * lane, bits + 32 * (step / 2) + 8 * lane + 4 * (step % 2), 8);
    for (int i = 0; i < 16; ++i) tensor_core::set_operand(steps[step], i, of_step[i]);
  }
}

// Runs `add(acc, record)` over the records, in one chain or in ordered segments.
template <class AddRecord>
float ordered_sum(std::int64_t records, Order order, const AddRecord& add) {
  const std::int64_t per_segment = order == Order::decode ? moe::kSegmentColumns / kStepColumns : records;
  float total = 0.0f;
  for (std::int64_t first = 0; first < records; first += per_segment) {
    float segment = 0.0f;
    for (std::int64_t r = first; r < std::min(records, first + per_segment); ++r) segment = add(segment, r);
    total = first == 0 ? segment : total + segment;
  }
  return total;
}

std::int64_t segments_of(std::int64_t columns, Order order) {
  return order == Order::decode ? (columns + moe::kSegmentColumns - 1) / moe::kSegmentColumns : 1;
}

// Exact sum of products of 16 (or 32) columns, times 4: codes are multiples of 1/2.
std::int32_t block_sum_x4(const Weights& a, std::int64_t row, const Weights& b, std::int64_t token,
                          std::int64_t first) {
  std::int32_t sum = 0;
  for (std::int64_t c = first; c < first + a.columns_per_scale; ++c)
    sum += e2m1_doubled(a.codes[static_cast<std::size_t>(row * a.columns + c)]) *
           e2m1_doubled(b.codes[static_cast<std::size_t>(token * b.columns + c)]);
  return sum;
}

float add_fp4_record(float acc, const Weights& a, std::int64_t row, const Weights& b, std::int64_t token,
                     std::int64_t first_column) {
  const int blocks = static_cast<int>(kStepColumns / a.columns_per_scale);
  std::int32_t sums[4], exponents[4], products[4];
  for (int i = 0; i < blocks; ++i) {
    const std::int64_t column = first_column + i * a.columns_per_scale;
    const std::uint8_t sa = scale_byte(a, row, column), sb = scale_byte(b, token, column);
    const auto pa = a.is_mxfp4() ? tensor_core::split_ue8m0(sa) : tensor_core::split_ue4m3(sa);
    const auto pb = a.is_mxfp4() ? tensor_core::split_ue8m0(sb) : tensor_core::split_ue4m3(sb);
    sums[i] = block_sum_x4(a, row, b, token, column);
    exponents[i] = pa.exponent + pb.exponent;
    products[i] = pa.significand * pb.significand;
  }
  return tensor_core::fused_sum_fp4(acc, sums, exponents, products, a.is_mxfp4() ? 0 : 6, blocks);
}

}  // namespace

Weights weights_of(const Nvfp4View& matrix) { return copy_of(matrix, 16); }
Weights weights_of(const Mxfp4View& matrix) { return copy_of(matrix, 32); }

double chain_bound_bf16(double magnitude, std::int64_t steps, std::int64_t segments) {
  // Every addend of a step is at most `magnitude`; truncation loses less than 2^-25 of the largest for each
  // of the 17, the rounding toward zero less than 2^-23 of the sum. Later steps keep those errors. Adding
  // segments rounds once each.
  const double per_step = 17.0 * 0x1p-25 + 0x1p-23;
  return magnitude * (static_cast<double>(steps) * per_step + static_cast<double>(segments) * 0x1p-24) *
         (1.0 + 0x1p-10);
}

double chain_bound_fp4(double magnitude, std::int64_t steps, std::int64_t segments, double scale_sum) {
  // One step of 64 columns. Products of E2M1 codes are multiples of 1/4 up to 36, so block sums are exact,
  // and so are their products with two scales of four bits. What is lost:
  //  - C and four block products are cut below 2^(E-35), toward zero: less than 2^(E-35) each, five times,
  //    where 2^E <= max(|C|, the step's largest scale product) <= magnitude + that product;
  //  - their sum becomes f32 in one rounding, toward zero: less than 2^-23 of it, and it is at most the sum
  //  of
  //    the absolute products so far, <= magnitude. To nearest would lose half of that.
  // Later steps add to these errors and enlarge none. Adding segments rounds to nearest once each, 2^-24.
  // The last factor covers the partial sums, which carry the errors so far: relative 2^-23 a step, less than
  // 2^-10 for all of K (8,192 columns are 128 steps).
  const double rounding = static_cast<double>(steps) * 0x1p-23 + static_cast<double>(segments) * 0x1p-24;
  const double truncation = 5.0 * 0x1p-35 * (static_cast<double>(steps) * magnitude + scale_sum);
  return (magnitude * rounding + truncation) * (1.0 + 0x1p-10);
}

Dot dot_w4a16(const Weights& weights, std::int64_t row, const Bf16* token, Order order) {
  Dot dot{};
  // Four sums side by side: a sum waits for the one before.
  double value[4] = {}, magnitude[4] = {};
  dot.bits = ordered_sum(weights.columns / kStepColumns, order, [&](float acc, std::int64_t record) {
    RecordColumns columns;
    decode_columns(weights, row, record * kStepColumns, columns);
    std::uint16_t from[kStepColumns];
    std::memcpy(from, token + record * kStepColumns, sizeof from);
    for (int c = 0; c < kStepColumns; c += 4)
      for (int i = 0; i < 4; ++i) {
        const double product = columns.value[c + i] * to_float(Bf16{from[c + i]});
        value[i] += product;
        magnitude[i] += std::abs(product);
      }
    tensor_core::WideOperands a[4], b[4];
    set_steps(a, columns.decoded);
    set_steps(b, from);
    for (int step = 0; step < 4; ++step) acc = tensor_core::fused_sum_16(acc, a[step], b[step]);
    return acc;
  });
  dot.value = value[0] + value[1] + value[2] + value[3];
  dot.magnitude = magnitude[0] + magnitude[1] + magnitude[2] + magnitude[3];
  dot.bound = chain_bound_bf16(dot.magnitude, weights.columns / 16, segments_of(weights.columns, order));
  return dot;
}

Dot dot_w4a4(const Weights& weights, std::int64_t row, const Weights& tokens, std::int64_t token,
             Order order) {
  Dot dot{};
  double scale_sum = 0.0, largest = 0.0;
  for (std::int64_t c = 0; c < weights.columns; ++c) {
    const double scales = scale_value(weights, row, c) * scale_value(tokens, token, c);
    const double product = scales * code_value(weights, row, c) * code_value(tokens, token, c);
    dot.value += product;
    dot.magnitude += std::abs(product);
    largest = c % kStepColumns == 0 ? scales : std::max(largest, scales);
    if (c % kStepColumns == kStepColumns - 1) scale_sum += largest;
  }
  dot.bits = ordered_sum(weights.columns / kStepColumns, order, [&](float acc, std::int64_t record) {
    return add_fp4_record(acc, weights, row, tokens, token, record * kStepColumns);
  });
  dot.bound = chain_bound_fp4(dot.magnitude, weights.columns / kStepColumns,
                              segments_of(weights.columns, order), scale_sum);
  return dot;
}

Dot dot_w8a8(const Weights& weights, std::int64_t row, const E4m3* token, int fraction_bits) {
  constexpr std::int64_t kStep = 32, kSum = 128;
  // What is lost of an addend, of the largest; and of the sum, which is at most f32.
  const double cut = std::ldexp(1.0, -fraction_bits),
               rounding = std::ldexp(1.0, -std::min(fraction_bits, 23));
  Dot dot{};
  const auto weight = [&](std::int64_t c) {
    return weights.values[static_cast<std::size_t>(row * weights.columns + c)];
  };
  std::int64_t end = weights.columns % kSum != 0 ? weights.columns % kSum : kSum;
  for (std::int64_t first = 0; first < weights.columns; first = end, end += kSum) {
    float sum = 0.0f;
    double magnitude = 0.0, bound = 0.0;  // of this sum
    for (std::int64_t step = first; step < end; step += kStep) {
      Operand a[kStep], b[kStep];
      double largest = magnitude + bound;  // what the sum so far may be
      for (std::int64_t c = step; c < step + kStep; ++c) {
        const E4m3 code = to_e4m3(to_float(weight(c)));
        a[c - step] = tensor_core::split_e4m3(code.bits);
        b[c - step] = tensor_core::split_e4m3(token[c].bits);
        const double product = static_cast<double>(to_float(code)) * to_float(token[c]);
        dot.value += product;
        magnitude += std::abs(product);
        largest = std::max(largest, std::abs(product));
      }
      sum = tensor_core::fused_sum_fp8(sum, a, b, fraction_bits);
      // 33 addends lose less than that of the largest each, the rounding toward zero of the sum.
      bound += 33.0 * cut * largest + rounding * (magnitude + bound);
    }
    dot.magnitude += magnitude;
    // What was added up before takes part in this rounding to nearest.
    dot.bound = dot.bound + bound + (dot.magnitude + dot.bound + bound) * 0x1p-24;
    dot.bits = dot.bits + sum;
  }
  return dot;
}

}  // namespace fourfold::reference
