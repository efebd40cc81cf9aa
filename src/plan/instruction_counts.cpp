// Written by tools/count_instructions.py from the machine code.
#include "plan/instruction_counts.h"

#include <array>

namespace fourfold::plan {
namespace {

// clang-format off
constexpr std::array<InstructionCount, 71> kCounts{{
    {"moe_gemm 128x128x128 w4a16-mma mxfp4", "sm90", 2048, 9.09, 4.41, 1.42, 0.53},
    {"moe_gemm 128x128x128 w4a16-mma nvfp4", "sm90", 2048, 9.17, 4.48, 1.42, 0.53},
    {"moe_gemm 128x128x256 w4a16-mma mxfp4", "sm90", 2048, 9.09, 4.41, 1.42, 0.53},
    {"moe_gemm 128x128x256 w4a16-mma nvfp4", "sm90", 2048, 9.17, 4.48, 1.42, 0.53},
    {"moe_gemm 128x128x64 w16a16-mma bf16", "sm90", 2048, 8.45, 3.98, 1.06, 0.56},
    {"moe_gemm 128x128x64 w4a16-mma mxfp4", "sm90", 2048, 9.33, 4.55, 1.41, 0.53},
    {"moe_gemm 128x128x64 w4a16-mma nvfp4 own-limit", "sm90", 2048, 9.39, 4.59, 1.42, 0.53},
    {"moe_gemm 128x128x64 w4a16-mma nvfp4", "sm90", 2048, 9.39, 4.59, 1.42, 0.53},
    {"moe_gemm 128x128x64 w8a16-mma fp8", "sm90", 2048, 9.55, 4.73, 1.44, 0.53},
    {"moe_gemm 128x16x128 w16a16-mma bf16", "sm90", 2048, 9.12, 3.00, 2.25, 1.00},
    {"moe_gemm 128x16x128 w8a16-mma fp8", "sm90", 2048, 17.75, 8.12, 6.12, 0.75},
    {"moe_gemm 128x16x256 w4a16-mma mxfp4", "sm90", 2048, 15.75, 7.12, 5.12, 0.75},
    {"moe_gemm 128x16x256 w4a16-mma nvfp4", "sm90", 2048, 16.25, 7.50, 5.25, 0.75},
    {"moe_gemm 128x256x64 w4a16-mma mxfp4", "sm90", 2048, 9.38, 4.21, 0.68, 0.52},
    {"moe_gemm 128x256x64 w4a16-mma nvfp4", "sm90", 2048, 9.41, 4.24, 0.68, 0.52},
    {"moe_gemm 128x32x128 w16a16-mma bf16", "sm90", 2048, 4.81, 0.81, 0.06, 0.75},
    {"moe_gemm 128x32x128 w4a16-mma mxfp4", "sm90", 2048, 8.00, 3.00, 1.31, 0.62},
    {"moe_gemm 128x32x128 w4a16-mma nvfp4", "sm90", 2048, 8.06, 3.06, 1.31, 0.62},
    {"moe_gemm 128x32x128 w8a16-mma fp8", "sm90", 2048, 9.19, 3.62, 1.75, 0.62},
    {"moe_gemm 128x64x128 w16a16-mma bf16", "sm90", 2048, 8.47, 3.66, 1.50, 0.62},
    {"moe_gemm 128x64x128 w4a16-mma mxfp4", "sm90", 2048, 10.19, 4.75, 2.19, 0.56},
    {"moe_gemm 128x64x128 w4a16-mma nvfp4", "sm90", 2048, 10.47, 5.00, 2.22, 0.56},
    {"moe_gemm 128x64x128 w8a16-mma fp8", "sm90", 2048, 10.78, 5.22, 2.31, 0.56},
    {"moe_gemm 128x8x256 w4a16-mma mxfp4", "sm90", 2048, 28.00, 14.00, 9.50, 1.00},
    {"moe_gemm 128x8x256 w4a16-mma nvfp4", "sm90", 2048, 29.00, 14.75, 9.75, 1.00},
    {"moe_gemm 256x128x128 w4a16-mma mxfp4", "sm90", 2048, 6.07, 2.47, 0.40, 0.27},
    {"moe_gemm 256x128x128 w4a16-mma nvfp4", "sm90", 2048, 6.10, 2.50, 0.40, 0.27},
    {"moe_gemm 256x128x64 w4a16-mma mxfp4", "sm90", 2048, 6.16, 2.52, 0.39, 0.28},
    {"moe_gemm 256x128x64 w4a16-mma nvfp4 own-limit", "sm90", 2048, 6.18, 2.53, 0.40, 0.28},
    {"moe_gemm 256x128x64 w4a16-mma nvfp4", "sm90", 2048, 6.18, 2.53, 0.40, 0.28},
    {"moe_gemm 256x128x64 w8a16-mma fp8", "sm90", 2048, 6.45, 2.80, 0.40, 0.29},
    {"moe_gemm 128x128x128 w4a16-mma mxfp4", "sm120", 2048, 3.44, 0.83, 0.34, 0.53},
    {"moe_gemm 128x128x128 w4a16-mma nvfp4", "sm120", 2048, 3.45, 0.84, 0.34, 0.53},
    {"moe_gemm 128x128x128 w4a4 nvfp4", "sm120", 8192, 5.47, 0.88, 0.47, 0.81},
    {"moe_gemm 128x128x256 w4a16-mma mxfp4", "sm120", 2048, 3.44, 0.83, 0.34, 0.53},
    {"moe_gemm 128x128x256 w4a16-mma nvfp4", "sm120", 2048, 3.45, 0.84, 0.34, 0.53},
    {"moe_gemm 128x128x256 w4a4 nvfp4", "sm120", 8192, 4.94, 0.78, 0.42, 0.81},
    {"moe_gemm 128x128x64 w16a16-mma bf16", "sm120", 2048, 2.95, 0.34, 0.00, 0.56},
    {"moe_gemm 128x128x64 w4a16-mma mxfp4", "sm120", 2048, 3.72, 0.95, 0.34, 0.53},
    {"moe_gemm 128x128x64 w4a16-mma nvfp4", "sm120", 2048, 3.73, 0.97, 0.34, 0.53},
    {"moe_gemm 128x128x64 w4a4 mxfp4", "sm120", 8192, 5.31, 1.06, 0.38, 0.81},
    {"moe_gemm 128x128x64 w4a4 nvfp4", "sm120", 8192, 5.19, 0.88, 0.38, 0.81},
    {"moe_gemm 128x128x64 w8a16-mma fp8", "sm120", 2048, 3.98, 1.22, 0.25, 0.53},
    {"moe_gemm 128x16x128 w16a16-mma bf16", "sm120", 2048, 5.00, 0.50, 0.00, 1.00},
    {"moe_gemm 128x16x128 w8a16-mma fp8", "sm120", 2048, 13.25, 5.50, 4.00, 0.75},
    {"moe_gemm 128x16x256 w4a16-mma mxfp4", "sm120", 2048, 11.12, 4.88, 2.75, 0.75},
    {"moe_gemm 128x16x256 w4a16-mma nvfp4", "sm120", 2048, 11.25, 5.00, 2.75, 0.75},
    {"moe_gemm 128x16x256 w4a4 nvfp4", "sm120", 8192, 8.62, 1.31, 1.19, 1.50},
    {"moe_gemm 128x256x64 w4a16-mma mxfp4", "sm120", 2048, 8.95, 4.25, 0.94, 0.52},
    {"moe_gemm 128x256x64 w4a16-mma nvfp4", "sm120", 2048, 8.99, 4.27, 0.95, 0.52},
    {"moe_gemm 128x256x64 w4a4 nvfp4", "sm120", 8192, 9.00, 2.97, 1.84, 0.72},
    {"moe_gemm 128x32x128 w16a16-mma bf16", "sm120", 2048, 3.69, 0.38, 0.00, 0.75},
    {"moe_gemm 128x32x128 w4a16-mma mxfp4", "sm120", 2048, 6.69, 2.56, 1.38, 0.62},
    {"moe_gemm 128x32x128 w4a16-mma nvfp4", "sm120", 2048, 6.88, 2.62, 1.38, 0.62},
    {"moe_gemm 128x32x128 w4a4 nvfp4", "sm120", 8192, 6.81, 1.06, 0.69, 1.00},
    {"moe_gemm 128x32x128 w8a16-mma fp8", "sm120", 2048, 7.62, 2.88, 2.00, 0.62},
    {"moe_gemm 128x64x128 w16a16-mma bf16", "sm120", 2048, 3.06, 0.31, 0.00, 0.62},
    {"moe_gemm 128x64x128 w4a16-mma mxfp4", "sm120", 2048, 4.50, 1.41, 0.69, 0.56},
    {"moe_gemm 128x64x128 w4a16-mma nvfp4", "sm120", 2048, 4.50, 1.44, 0.69, 0.56},
    {"moe_gemm 128x64x128 w4a4 nvfp4", "sm120", 8192, 6.81, 1.06, 0.69, 1.00},
    {"moe_gemm 128x64x128 w8a16-mma fp8", "sm120", 2048, 5.06, 1.56, 1.00, 0.56},
    {"moe_gemm 128x8x256 w4a16-mma mxfp4", "sm120", 2048, 20.25, 9.50, 5.50, 1.00},
    {"moe_gemm 128x8x256 w4a16-mma nvfp4", "sm120", 2048, 20.25, 9.75, 5.50, 1.00},
    {"moe_gemm 128x8x256 w4a4 nvfp4", "sm120", 8192, 12.50, 1.25, 1.88, 2.50},
    {"moe_gemm 256x128x128 w4a16-mma mxfp4", "sm120", 2048, 6.19, 2.55, 0.31, 0.27},
    {"moe_gemm 256x128x128 w4a16-mma nvfp4", "sm120", 2048, 6.21, 2.58, 0.31, 0.27},
    {"moe_gemm 256x128x128 w4a4 nvfp4", "sm120", 8192, 5.75, 1.16, 0.31, 0.72},
    {"moe_gemm 256x128x64 w4a16-mma mxfp4", "sm120", 2048, 6.31, 2.58, 0.31, 0.27},
    {"moe_gemm 256x128x64 w4a16-mma nvfp4", "sm120", 2048, 6.34, 2.60, 0.31, 0.27},
    {"moe_gemm 256x128x64 w4a4 nvfp4", "sm120", 8192, 8.97, 2.97, 1.81, 0.72},
    {"moe_gemm 256x128x64 w8a16-mma fp8", "sm120", 2048, 6.60, 2.94, 0.25, 0.28},
}};
// clang-format on

}  // namespace

std::span<const InstructionCount> instruction_counts() { return kCounts; }

}  // namespace fourfold::plan
