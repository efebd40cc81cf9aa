// must not compile: FitsThreads<1056, 1024>
#include "plan/budget.h"

namespace fourfold::plan {

static_assert(FitsThreads<1'056, Sm120::threads_per_block_max>::value);

}  // namespace fourfold::plan
