// The chips kernels are compiled for, and which budget their rows keep. Hopper runs the rows that exist on
// SM120 within SM120's shared memory: to prove them, and to measure what 99 KB costs.
#pragma once

#include "plan/arch.h"

namespace fourfold::moe {

struct Sm90Within99K : plan::Sm90 {
  static constexpr plan::ArchFacts capped = [] {
    plan::ArchFacts facts = plan::kSm90;
    facts.smem_bytes_per_block = plan::kSm120.smem_bytes_per_block;
    facts.smem_bytes_per_sm = plan::kSm120.smem_bytes_per_sm;
    return facts;
  }();
  static constexpr const plan::ArchFacts& facts = capped;
  static constexpr int smem_bytes_per_block = capped.smem_bytes_per_block;
  static constexpr int smem_bytes_per_sm = capped.smem_bytes_per_sm;
};

// What a kernel's list of rows is made for. Shared: the rows every chip has; Own: rows that take all the
// shared memory there is.
struct Hopper {
  using Shared = Sm90Within99K;
  using Own = plan::Sm90;
  static constexpr bool has_wgmma = true;
  static constexpr bool has_fp8_mma = false;  // ptxas makes bf16 products of it, after a conversion
};
struct Workstation {  // SM120 and SM121: one source, one budget
  using Shared = plan::Sm120;
  using Own = plan::Sm120;
  static constexpr bool has_wgmma = false;
  static constexpr bool has_fp8_mma = true;
};
struct Sm121Workstation {  // the same kernels under their own name, for plans
  using Shared = plan::Sm121;
  using Own = plan::Sm121;
  static constexpr bool has_wgmma = false;
  static constexpr bool has_fp8_mma = true;
};
// The simulator: every row under SM120's limits, and the wgmma rows under Hopper's. Who simulates SM120
// leaves those out.
struct Simulated {
  using Shared = plan::Sm120;
  using Own = plan::Sm120;
  static constexpr bool has_wgmma = true;
  static constexpr bool has_fp8_mma = true;
};

}  // namespace fourfold::moe
