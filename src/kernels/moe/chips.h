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

struct Hopper {
  using Own = plan::Sm90;        // rows of its own: wgmma
  using Shared = Sm90Within99K;  // rows it shares with SM120
};
struct Workstation {  // SM120 and SM121: one source, one budget
  using Own = plan::Sm120;
  using Shared = plan::Sm120;
};

}  // namespace fourfold::moe
