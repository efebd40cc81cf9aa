#include "plan/chip_rates.h"

#include <array>

#include "base/format.h"

namespace fourfold::plan {
namespace {

constexpr double kHopperGhz = 1.98;  // the most its driver allows, and what its runs had

// Base and boost clock as published; under this load they are anywhere between. GB10's are not published:
// owners lock theirs at 2.2 GHz and see up to 2.5.
struct Clock {
  std::string_view product;
  double base_ghz, boost_ghz;
  Evidence evidence;
};
constexpr std::array<Clock, 7> kClocks{{
    {"RTX PRO 6000 Blackwell Workstation", 1.590, 2.617, Evidence::published},
    {"RTX PRO 6000 Blackwell Max-Q", 1.590, 2.288, Evidence::published},
    {"RTX PRO 6000 Blackwell Server", 1.590, 2.617, Evidence::assumed},
    {"RTX 5090", 2.017, 2.407, Evidence::published},
    {"RTX 5080", 2.295, 2.617, Evidence::published},
    {"RTX 5070 Ti", 2.295, 2.452, Evidence::published},
    {"DGX Spark GB10", 2.0, 2.5, Evidence::assumed},
}};

// Nobody measured a latency of SM12x for us. Fast: as many clocks as on the H200. Slow: half as long again;
// one token of the MoE layer lost 25 % when SMs were made as small (bench/results/small-sm-h200.txt), and
// memory that answers later is not in that.
constexpr double kSlowLatency = 1.5;

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
  const ChipRates one{product.sm_count, kHopperGhz, speed.high, 1, product.arch->smem_bytes_per_sm};
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
