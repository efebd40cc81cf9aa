#include "plan/kernel_floor.h"

#include "plan/record_size.h"

namespace fourfold::plan {
namespace {

// Of a clock and SM: what the row's products run at. FP8's are twice as fast as bf16's on every chip that has
// a row for them.
double peak_flops(const KernelWork& work, const ChipRates& chip) {
  if (chip.fp4_flops > 0 && work.row.find("w4a4") != std::string::npos) return chip.fp4_flops;
  return (work.row.find("w8a8") != std::string::npos ? 2 : 1) * chip.tensor_flops;
}

}  // namespace

KernelFloor kernel_floor(const KernelWork& work, const ChipRange& chip) {
  const double bytes = work.weight_bytes + work.other_bytes + work.row_bytes;
  const double flops = work.flops + 2 * work.visit_tokens * kRecordRows * kRecordColumns;
  return {bytes / (1e3 * chip.peak_gb_per_s),
          flops / (peak_flops(work, chip.fast) * 1e3 * chip.fast.ghz * chip.fast.sms)};
}

}  // namespace fourfold::plan
