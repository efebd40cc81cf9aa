// must not compile: RegisterDemand<67584, 65536>
// Nine warps of 176 registers are counted as twelve.
#include "plan/budget.h"

namespace fourfold::plan {

static_assert(FitsRegisters<288, 176, Sm120::registers_per_sm>::value);

}  // namespace fourfold::plan
