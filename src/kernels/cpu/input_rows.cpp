#include "kernels/cpu/input_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/bf16.h"

namespace fourfold::cpu {
namespace {

constexpr int kBlock = 16;

// Nearest even by the float unit itself: adding and taking away 1.5 * 2^23 leaves the integer. |x| < 2^22.
inline std::int32_t nearest_integer(float x) {
  constexpr float magic = 0x1.8p23f;
  return std::bit_cast<std::int32_t>(x + magic) - std::bit_cast<std::int32_t>(magic);
}

void write_tail(const BlockTail& tail, std::uint8_t* block, int planes) {
  std::memcpy(block + 16 * planes, &tail, sizeof tail);
}

float largest_of(const float* x) {
  float amax = 0;
  for (int i = 0; i < kBlock; ++i) amax = widen_amax(amax, x[i]);
  return amax;
}

bool all_finite(const float* x) {
  std::uint32_t worst = 0;
  for (int i = 0; i < kBlock; ++i) worst = std::max(worst, magnitude_bits(x[i]));
  return worst < kF32InfinityBits;
}

// The exponent of a block's largest, kept where its powers below are normal numbers.
int exponent_of(float amax) {
  return std::max(static_cast<int>(std::bit_cast<std::uint32_t>(amax) >> 23) - 127, -100);
}
float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

void make_two_planes(const float* x, bool finite, std::uint8_t* block) {
  auto* high = reinterpret_cast<std::int8_t*>(block);
  auto* low = high + kBlock;
  const int exponent = exponent_of(largest_of(x));
  const float inverse = power_of_two(14 - exponent);
  std::int32_t sum = 0;
  for (int i = 0; i < kBlock; ++i) {
    // Two planes hold up to 127 * 256 + 127. The largest bf16 below 2^(e + 1) is one more.
    const std::int32_t q = std::clamp(nearest_integer(x[i] * inverse), -32640, 32639);
    const std::int32_t upper = (q + 128) >> 8;
    high[i] = static_cast<std::int8_t>(upper);
    low[i] = static_cast<std::int8_t>(q - 256 * upper);
    sum += q;
  }
  const float scale = finite ? power_of_two(exponent - 14 + 7) : std::numeric_limits<float>::quiet_NaN();
  write_tail({scale, -kCodeBias * sum, 0, 0}, block, 2);
}

void make_three_planes(const float* x, bool finite, std::uint8_t* block) {
  auto* high = reinterpret_cast<std::int8_t*>(block);
  auto* middle = high + kBlock;
  auto* low = middle + kBlock;
  const int exponent = exponent_of(largest_of(x));
  const float inverse = power_of_two(21 - exponent);
  std::int32_t sum = 0;
  std::int32_t low_sum = 0;
  for (int i = 0; i < kBlock; ++i) {
    const auto q = static_cast<std::int32_t>(__builtin_nearbyintf(x[i] * inverse));  // at most 2^22
    const std::int32_t above = (q + 128) >> 8;
    const std::int32_t upper = (above + 128) >> 8;
    high[i] = static_cast<std::int8_t>(upper);
    middle[i] = static_cast<std::int8_t>(above - 256 * upper);
    low[i] = static_cast<std::int8_t>(q - 256 * above);
    sum += above;
    low_sum += low[i];
  }
  const float scale = finite ? power_of_two(exponent - 21 + 7) : std::numeric_limits<float>::quiet_NaN();
  write_tail({scale, -kCodeBias * sum, -kCodeBias * low_sum, 0}, block, 3);
}

void make_one_plane(const float* x, const Nvfp4InputScale& input_scale, std::uint8_t* block) {
  auto* plane = reinterpret_cast<std::int8_t*>(block);
  const E4m3 scale = nvfp4_activation_scale(largest_of(x), input_scale.inverse);
  const float multiplier = nvfp4_activation_multiplier(scale, input_scale.inverse);
  std::int32_t sum = 0;
  for (int i = 0; i < kBlock; ++i) {
    const int code = e2m1_doubled(nvfp4_activation_code(x[i], multiplier));
    plane[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  write_tail({to_float(scale) * 0x1p6f, -kCodeBias * sum, 0, 0}, block, 1);
}

}  // namespace

void make_input_row(InputForm form, const float* values, std::int64_t columns,
                    const Nvfp4InputScale& input_scale, std::uint8_t* out) {
  if (form == InputForm::bf16_tiles) {
    std::memset(out, 0, static_cast<std::size_t>(row_bytes(form, columns)));
    for (std::int64_t i = 0; i < columns; ++i) {
      const Bf16 x = to_bf16(absolute(values[i]) < kLeastTileInput ? 0.0f : values[i]);
      std::memcpy(out + 2 * i, &x.bits, 2);
    }
    return;
  }
  const bool rounds =
      form == InputForm::floats_bf16 || form == InputForm::two_planes || form == InputForm::one_plane_bf16;
  const int planes = plane_count(form);
  const std::int64_t step = planes == 0 ? 4 * kBlock : block_bytes(planes);
  for (std::int64_t begin = 0; begin < columns; begin += kBlock, out += step) {
    float x[kBlock] = {};
    const auto count = static_cast<int>(std::min<std::int64_t>(kBlock, columns - begin));
    if (rounds)
      for (int i = 0; i < count; ++i) x[i] = to_float(to_bf16(values[begin + i]));
    else
      for (int i = 0; i < count; ++i) x[i] = values[begin + i];
    // What is no number has no integer either; the scale tells of it.
    const bool finite = planes < 2 || all_finite(x);
    if (!finite) std::fill_n(x, kBlock, 0.0f);
    switch (form) {
      case InputForm::floats:
      case InputForm::floats_bf16: std::memcpy(out, x, sizeof x); break;
      case InputForm::one_plane:
      case InputForm::one_plane_bf16: make_one_plane(x, input_scale, out); break;
      case InputForm::two_planes: make_two_planes(x, finite, out); break;
      case InputForm::three_planes: make_three_planes(x, finite, out); break;
      case InputForm::bf16_tiles: break;  // above
    }
  }
}

}  // namespace fourfold::cpu
