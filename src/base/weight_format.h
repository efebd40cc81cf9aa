// What a weight is multiplied as: the one list of number formats, by which kernels are chosen and named. How
// a checkpoint stores a tensor (checkpoint::MatrixFormat, which knows block scales) and what a program wants
// of its inputs and of its KV cache are other facts. A kernel that has no rows for a format says so: a switch
// over this list names every entry, so that a new one does not become another silently.
#pragma once

#include <cstdint>
#include <string_view>

namespace fourfold {

// The values are part of kernels' arguments (moe_few/few_params.h): new formats go to the end.
enum class WeightFormat : std::int32_t { bf16, fp8, nvfp4, mxfp4, f32 };

constexpr std::string_view format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16: return "bf16";
    case WeightFormat::fp8: return "fp8";  // E4M3
    case WeightFormat::nvfp4: return "nvfp4";
    case WeightFormat::mxfp4: return "mxfp4";
    case WeightFormat::f32: return "f32";
  }
  return "unknown";
}

}  // namespace fourfold
