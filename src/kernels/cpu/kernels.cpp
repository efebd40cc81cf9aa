#include "kernels/cpu/kernels.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/isa_tables.h"

namespace fourfold::cpu {

void make_input_row(const Kernels& kernels, InputForm form, const float* values, std::int64_t columns,
                    const Nvfp4InputScale& input_scale, std::uint8_t* out) {
  switch (form) {
    case InputForm::floats_bf16: return kernels.round_row(values, columns, out);
    case InputForm::two_planes: return kernels.make_two_plane_row(values, columns, out);
    case InputForm::floats:
    case InputForm::bf16_tiles:
    case InputForm::three_planes: return make_input_row(form, values, columns, input_scale, out);
    case InputForm::one_plane:
    case InputForm::one_plane_bf16: break;
  }
  // Some blocks at a time: their maxima, then their E4M3 scales, then their codes.
  constexpr std::int64_t run = 64;
  for (std::int64_t begin = 0; begin < columns; begin += run * 16) {
    const std::int64_t count = std::min(run * 16, columns - begin);
    float maxima[run], multipliers[run], scales[run];
    alignas(64) float rounded[run * 16];
    const float* from = values + begin;
    if (form == InputForm::one_plane_bf16) {
      kernels.round_row(from, count, reinterpret_cast<std::uint8_t*>(rounded));
      from = rounded;
    }
    kernels.block_maxima(from, count, maxima);
    for (std::int64_t block = 0; block * 16 < count; ++block) {
      const E4m3 scale = nvfp4_activation_scale(maxima[block], input_scale.inverse);
      multipliers[block] = nvfp4_activation_multiplier(scale, input_scale.inverse);
      scales[block] = to_float(scale) * 0x1p6f;
    }
    kernels.make_one_plane_row(from, count, multipliers, scales, out + begin / 16 * block_bytes(1));
  }
}

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::plain: return kPlainKernels;
#if defined(__x86_64__)
    case Isa::avx2: return kAvx2Kernels;
    case Isa::avx512: return kAvx512Kernels;
    case Isa::amx: return kAmxKernels;
#elif defined(__aarch64__)
    case Isa::neon: return kNeonKernels;
#endif
    default: break;
  }
  check(false, "the instruction set is one of available_isas()", isa_name(isa));
  return kPlainKernels;
}

}  // namespace fourfold::cpu
