// What a chip gives to a kernel: SMs, clock, memory, tensor cores, and how long latencies are beside the
// H200's, on which the constants of kernel_time.cpp were found. Two ends of what is believed of a product.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "plan/products.h"
#include "plan/range.h"

namespace fourfold::plan {

// Bytes a second that a product's memory is read at. Measured where it was; otherwise a share of what is
// published: what the H200 reaches of its own, or what `fourfold doctor` still lets pass.
inline constexpr double kReadShareMost = 0.95, kReadShareLeast = 0.85;
Range read_gb_per_s(const Product& product);

struct ChipRates {
  int sms = 0;
  double ghz = 0;
  double gb_per_s = 0;
  double latency = 1;  // times in microseconds against the H200's: starts, exchanges, chains
  int sm_shared_bytes = 0;
  std::string_view code;    // whose machine code runs: "sm90" or "sm120" (instruction_counts.h)
  double tensor_flops = 0;  // bf16, dense, f32 sums: a clock and SM
  double fp4_flops = 0;     // 0: it has none
  double tile_stall = 0;    // issue slots that an instruction of a tiled GEMM on mma takes of a warp's share
};

// 95 of a hundred lines that were measured on the H200 and kept out of the fit are closer than this; a test
// holds it against them. It widens both ends of every range; a chip that is not here has no smaller error.
inline constexpr double kModelError = 0.2;

// The H200 was measured: its ends are one. Elsewhere every fact that nobody measured has two ends, and all
// fast ends together make the fast chip.
struct ChipRange {
  ChipRates fast, slow;
  Evidence evidence = Evidence::assumed;
  std::string because;
  double peak_gb_per_s = 0;
  // Of a kernel that moves these bytes, with the model's own error: none makes it faster than the memory was
  // sold as.
  Range widened(double fast_us, double slow_us, double bytes) const {
    return {std::max(fast_us / (1 + kModelError), bytes / (1e3 * peak_gb_per_s)),
            slow_us * (1 + kModelError)};
  }
};
// None: nothing is known of its clock.
std::optional<ChipRange> chip_range(const Product& product);

}  // namespace fourfold::plan
