#include "plan/chip_rates.h"

#include <array>

#include "base/format.h"

namespace fourfold::plan {
namespace {

constexpr double kHopperGhz = 1.98;  // the most its driver allows, and what its runs had

// Base and boost clock as published; under this load they are anywhere between. GB10's are not published:
// owners lock theirs at 2.2 GHz and see up to 2.5. Rates of the tensor cores follow from the published peaks
// with f32 sums (RTX PRO 6000: 503.8 TFLOPS at 2.617 GHz; RTX 5090: 209.5 at 2.407, half of it a clock); of
// GB10 no bf16 peak is published, so both are possible.
struct Clock {
  std::string_view product;
  double base_ghz, boost_ghz;
  double least_flops, most_flops;  // bf16, a clock and SM
  Evidence evidence;
};
constexpr std::array<Clock, 7> kClocks{{
    {"RTX PRO 6000 Blackwell Workstation", 1.590, 2.617, 1024, 1024, Evidence::published},
    {"RTX PRO 6000 Blackwell Max-Q", 1.590, 2.288, 1024, 1024, Evidence::published},
    {"RTX PRO 6000 Blackwell Server", 1.590, 2.617, 1024, 1024, Evidence::assumed},
    {"RTX 5090", 2.017, 2.407, 512, 512, Evidence::published},
    {"RTX 5080", 2.295, 2.617, 512, 512, Evidence::published},
    {"RTX 5070 Ti", 2.295, 2.452, 512, 512, Evidence::published},
    {"DGX Spark GB10", 2.0, 2.5, 512, 1024, Evidence::assumed},
}};

// Nobody measured a latency of SM12x for us. Fast: as many clocks as on the H200. Slow: half as long again;
// one token of the MoE layer lost 22 % when SMs were made as small (bench/results/small-sm-h200.txt), and
// memory that answers later is not in that.
constexpr double kSlowLatency = 1.5;

constexpr double kHopperFlops = 4096;
constexpr double kFp4Flops = 4096;  // published: 2,015 TFLOPS of an RTX PRO 6000, 1,676 of a 5090

// Twelve rows of the 35B's tiled GEMMs on mma took 2.8 to 4.4 issue slots an instruction on the H200, 3.7 on
// the whole (bench/results/rows-h200-35b.csv over instruction_counts.h): few warps wait for what they load
// and multiply. The same loops on SM12x are taken to wait as they do.
constexpr double kHopperStall = 3.68;
constexpr Range kTileStall{2.8, 4.4};

}  // namespace

Range read_gb_per_s(const Product& product) {
  if (product.measured_read_gb_per_s)
    return {static_cast<double>(*product.measured_read_gb_per_s),
            static_cast<double>(*product.measured_read_gb_per_s)};
  const auto published = static_cast<double>(product.bandwidth_gb_per_s);
  return {kReadShareLeast * published, kReadShareMost * published};
}

std::optional<ChipRange> chip_range(const Product& product) {
  const Range speed = read_gb_per_s(product);
  ChipRates one{product.sm_count, kHopperGhz,   speed.high, 1,           product.arch->smem_bytes_per_sm,
                "sm90",           kHopperFlops, 0,          kHopperStall};
  if (product.arch->cc_major == 12) one.code = "sm120", one.fp4_flops = kFp4Flops;
  ChipRange range;
  range.fast = range.slow = one;
  range.slow.gb_per_s = speed.low;
  range.peak_gb_per_s = product.bandwidth_gb_per_s;
  const std::string error = format(", {} % for the model's own error", 100 * kModelError);
  const std::string memory =
      format("{} to {} of {} GB/s (assumed)", kReadShareLeast, kReadShareMost, product.bandwidth_gb_per_s);
  if (product.arch->name == kSm90.name) {
    const bool is_measured = product.measured_read_gb_per_s.has_value();
    range.evidence = is_measured ? Evidence::measured : Evidence::assumed;
    range.because = (is_measured ? "this chip was measured" : "the H200's SMs with " + memory) + error;
    return range;
  }
  for (const Clock& clock : kClocks) {
    if (clock.product != product.name) continue;
    range.fast.ghz = clock.boost_ghz, range.fast.latency = kHopperGhz / clock.boost_ghz;
    range.slow.ghz = clock.base_ghz, range.slow.latency = kSlowLatency;
    range.fast.tensor_flops = clock.most_flops, range.slow.tensor_flops = clock.least_flops;
    range.fast.tile_stall = kTileStall.low, range.slow.tile_stall = kTileStall.high;
    range.because =
        memory + format(
                     ", {} to {} GHz ({}), latencies from the H200's in clocks to {} times its in time "
                     "(assumed){}",
                     clock.base_ghz, clock.boost_ghz, evidence_name(clock.evidence), kSlowLatency, error);
    return range;
  }
  return std::nullopt;
}

}  // namespace fourfold::plan
