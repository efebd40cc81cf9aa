// bf16: the fast sums of multiply_row, and the plain ones of base/tensor_core.h for operands they do not
// cover.
#include "sim/tensor_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/tensor_core.h"
#include "base/wide_operands.h"
#include "sim/vector_width.h"

namespace fourfold::sim {
namespace {

// The compiler's portable vectors.
typedef float Floats4 __attribute__((vector_size(16)));
typedef std::int32_t Ints4 __attribute__((vector_size(16)));
typedef float Floats8 __attribute__((vector_size(32)));
typedef std::int32_t Ints8 __attribute__((vector_size(32)));
typedef std::int16_t Shorts __attribute__((vector_size(16)));
typedef std::uint16_t Halves __attribute__((vector_size(16)));

// Ordinary operands lie between 2^-45 and 2^46, C between 2^-90 and 2^91: then no product, scaled product or
// result leaves the normal range of f32.
constexpr std::int16_t kOrdinary = 45;
constexpr std::int16_t kOrdinarySum = 90;
constexpr std::int16_t kZeroExponent = -8000;  // loses against everything; two of them still fit 16 bits

bool any(Shorts mask) {
  std::uint64_t halves[2];
  std::memcpy(halves, &mask, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

// Eight bf16 to value and exponent; says whether tiny or large ones are among them.
void split(const std::uint16_t* bits, float* value, std::int16_t* exponent, bool& tiny, bool& large) {
  Halves raw;
  std::memcpy(&raw, bits, sizeof raw);
  const Shorts zero = (raw & 0x7FFF) == 0;
  const Shorts biased = (Shorts)((raw >> 7) & 0xFF);
  const Shorts subnormal = biased == 0;
  const Shorts power = biased - 127 - subnormal;  // a true comparison is -1
  const Shorts small = (power < -kOrdinary) & ~zero;
  const Shorts masked = (power & ~zero) | (zero & kZeroExponent);
  std::memcpy(exponent, &masked, sizeof masked);
  tiny = tiny || any(small);
  large = large || any(power > kOrdinary);
  const Halves kept = raw & (Halves)~small;
  std::uint16_t ordinary[8];
  std::memcpy(ordinary, &kept, sizeof ordinary);
  for (int i = 0; i < 8; ++i) value[i] = std::bit_cast<float>(static_cast<std::uint32_t>(ordinary[i]) << 16);
}

// The largest exponents of a set of operands, and of the tiny ones among them.
struct Powers {
  int largest = kZeroExponent;
  int tiny = kZeroExponent;

  void add(const std::int16_t* exponents, int count) {
    for (int i = 0; i < count; ++i) {
      largest = std::max<int>(largest, exponents[i]);
      if (exponents[i] < -kOrdinary) tiny = std::max<int>(tiny, exponents[i]);
    }
  }
};

// The exponent E a sum must reach for every product with a tiny operand to be truncated to nothing: such a
// product is below 2^(a + b + 2), and what lies below 2^(E - 25) is dropped.
std::int16_t needed_for_tiny(const Powers& row, const Powers& columns) {
  return static_cast<std::int16_t>(std::max(row.tiny + columns.largest, columns.tiny + row.largest) + 27);
}

// tensor_core::fused_sum_16 for one row and eight columns of ordinary operands. Products are exact in f32;
// scaled so that the unit of truncation is 1, conversion to an integer is the truncation, and sums of
// integers are exact. False, and nothing changed, where a tiny operand could matter.
template <class Floats, class Ints>
[[gnu::always_inline]] inline bool multiply_lanes(const Bf16Rows& rows, int row, const Bf16Columns& columns,
                                                  const Powers& column_powers, float (&c)[8]) {
  constexpr int kLanes = sizeof(Floats) / sizeof(float);
  std::int16_t powers[8];
  for (int n = 0; n < 8; ++n) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(c[n]);
    powers[n] = static_cast<std::int16_t>(bits << 1 == 0 ? 2 * kZeroExponent
                                                         : static_cast<int>(bits >> 23 & 255u) - 127);
  }
  Shorts largest;
  std::memcpy(&largest, powers, sizeof largest);
  for (int k = 0; k < 16; ++k) {
    Shorts exponent;
    std::memcpy(&exponent, columns.exponent[k], sizeof exponent);
    exponent += rows.exponent[row][k];
    const Shorts larger = exponent > largest;
    largest = (exponent & larger) | (largest & ~larger);
  }
  if (rows.tiny[row] || columns.tiny) {
    Powers row_powers;
    row_powers.add(rows.exponent[row], 16);
    if (any(largest < needed_for_tiny(row_powers, column_powers))) return false;
  }
  constexpr std::int16_t kLeast = -kOrdinarySum;
  const Shorts nothing = largest < kLeast;  // every addend is zero
  largest = (largest & ~nothing) | (nothing & kLeast);
  std::int16_t power[8];
  std::memcpy(power, &largest, sizeof power);
  for (int first_column = 0; first_column < 8; first_column += kLanes) {
    alignas(Floats) float scales[kLanes];
    for (int n = 0; n < kLanes; ++n)
      scales[n] = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 25 - power[first_column + n]) << 23);
    Floats scale, addend;
    std::memcpy(&scale, scales, sizeof scale);
    std::memcpy(&addend, c + first_column, sizeof addend);
    // A scaled product is below 2^27, so sixteen of them and C could overflow 32 bits: two sums.
    Ints low = __builtin_convertvector(addend * scale, Ints), high{};
    for (int k = 0; k < 8; ++k) {
      Floats first, second;
      std::memcpy(&first, columns.value[k] + first_column, sizeof first);
      std::memcpy(&second, columns.value[k + 8] + first_column, sizeof second);
      low += __builtin_convertvector(first * rows.value[row][k] * scale, Ints);
      high += __builtin_convertvector(second * rows.value[row][k + 8] * scale, Ints);
    }
    // Back to the true scale; then the bits an f32 has no room for are cut, which rounds toward zero.
    std::int32_t lows[kLanes], highs[kLanes];
    std::memcpy(lows, &low, sizeof lows);
    std::memcpy(highs, &high, sizeof highs);
    for (int n = 0; n < kLanes; ++n) {
      const double unit =
          std::bit_cast<double>(static_cast<std::uint64_t>(1023 - 25 + power[first_column + n]) << 52);
      const double sum = (static_cast<double>(lows[n]) + static_cast<double>(highs[n])) * unit;
      c[first_column + n] = static_cast<float>(
          std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) & ~std::uint64_t{0x1FFFFFFF}));
    }
  }
  return true;
}

#ifdef FOURFOLD_SIM_EIGHT_LANES
FOURFOLD_SIM_EIGHT_LANES bool multiply_eight(const Bf16Rows& rows, int row, const Bf16Columns& columns,
                                             const Powers& column_powers, float (&c)[8]) {
  return multiply_lanes<Floats8, Ints8>(rows, row, columns, column_powers, c);
}
#endif
bool multiply_row(const Bf16Rows& rows, int row, const Bf16Columns& columns, const Powers& column_powers,
                  float (&c)[8]) {
#ifdef FOURFOLD_SIM_EIGHT_LANES
  if (has_eight_lanes) return multiply_eight(rows, row, columns, column_powers, c);
#endif
  return multiply_lanes<Floats4, Ints4>(rows, row, columns, column_powers, c);
}

// Operands of any size, MXFP4's weights among them: they are decoded to about 2^-62.
struct AnyOperands {
  tensor_core::WideOperands operands;
  bool finite = true;

  void set(int k, std::uint16_t bits) {
    tensor_core::set_operand(operands, k, bits);
    finite = finite && tensor_core::is_finite_bf16(bits);
  }
};

float multiply_one(const AnyOperands& a, const AnyOperands& b, const Bf16Rows& rows, int row,
                   const Bf16Columns& columns, int n, float c) {
  if (a.finite && b.finite && std::isfinite(c)) return tensor_core::fused_sum_16(c, a.operands, b.operands);
  double sum = c;
  for (int k = 0; k < 16; ++k)
    sum += static_cast<double>(std::bit_cast<float>(std::uint32_t{rows.bits[row][k]} << 16)) *
           std::bit_cast<float>(std::uint32_t{columns.bits[k][n]} << 16);
  return std::isnan(sum) ? std::bit_cast<float>(0x7FFFFFFFu) : static_cast<float>(sum);
}

bool ordinary(const float (&c)[8]) {
  bool all = true;
  for (const float value : c) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const int power = static_cast<int>(bits >> 23 & 255u) - 127;
    all = all && (bits << 1 == 0 || (power >= -kOrdinarySum && power <= kOrdinarySum));
  }
  return all;
}

}  // namespace

void gather_rows(const std::uint32_t* const (&a)[32], Bf16Rows& rows) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + 8 * (i & 1), k = 2 * (lane & 3) + 8 * (i >> 1);
      std::memcpy(&rows.bits[row][k], &a[lane][i], 4);  // k and k + 1, low half first
    }
  for (int row = 0; row < 16; ++row) {
    rows.tiny[row] = rows.large[row] = false;
    for (int k = 0; k < 16; k += 8)
      split(rows.bits[row] + k, rows.value[row] + k, rows.exponent[row] + k, rows.tiny[row], rows.large[row]);
  }
}

void gather_columns(const std::uint32_t (&b)[32][2], Bf16Columns& columns) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2; ++i) {
      const int n = lane >> 2, k = 2 * (lane & 3) + 8 * i;
      columns.bits[k][n] = static_cast<std::uint16_t>(b[lane][i]);
      columns.bits[k + 1][n] = static_cast<std::uint16_t>(b[lane][i] >> 16);
    }
  prepare(columns);
}

void prepare(Bf16Columns& columns) {
  columns.tiny = columns.large = false;
  for (int k = 0; k < 16; ++k)
    split(columns.bits[k], columns.value[k], columns.exponent[k], columns.tiny, columns.large);
}

void multiply(const Bf16Rows& rows, const Bf16Columns& columns, float (&c)[16][8]) {
  Powers column_powers;
  const bool any_tiny =
      std::any_of(rows.tiny, rows.tiny + 16, [](bool tiny) { return tiny; }) || columns.tiny;
  if (any_tiny) column_powers.add(columns.exponent[0], 16 * 8);
  AnyOperands b[8];
  bool has_b = false;
  for (int row = 0; row < 16; ++row) {
    const bool fast = !columns.large && !rows.large[row] && ordinary(c[row]);
    if (fast && multiply_row(rows, row, columns, column_powers, c[row])) [[likely]]
      continue;
    if (!has_b)
      for (int n = 0; n < 8; ++n)
        for (int k = 0; k < 16; ++k) b[n].set(k, columns.bits[k][n]);
    has_b = true;
    AnyOperands a;
    for (int k = 0; k < 16; ++k) a.set(k, rows.bits[row][k]);
    for (int n = 0; n < 8; ++n) c[row][n] = multiply_one(a, b[n], rows, row, columns, n, c[row][n]);
  }
}

}  // namespace fourfold::sim
