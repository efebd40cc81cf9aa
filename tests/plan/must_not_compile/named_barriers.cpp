// must not compile: FitsNamedBarriers<17, 16>
#include "plan/budget.h"

namespace fourfold::plan {

static_assert(FitsNamedBarriers<17, Sm120::named_barriers>::value);

}  // namespace fourfold::plan
