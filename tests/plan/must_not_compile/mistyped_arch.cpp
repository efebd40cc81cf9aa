// must not compile: ArchType<fourfold::plan::kWrong>
// A row of the architecture table whose numbers contradict each other.
#include "plan/arch.h"

namespace fourfold::plan {

constexpr ArchFacts with_wrong_reserve() {
  ArchFacts facts = kSm120;
  facts.smem_bytes_per_sm = 102'401;
  return facts;
}
constexpr ArchFacts kWrong = with_wrong_reserve();

static_assert(ArchType<kWrong>::smem_bytes_per_block > 0);

}  // namespace fourfold::plan
