// must not compile: FitsSharedMemory<50177, 50176>
// One byte more than two blocks an SM leave each other.
#include "plan/budget.h"

namespace fourfold::plan {

struct Storage {
  unsigned char bytes[50'177];
};

static_assert(FitsSharedMemory<sizeof(Storage), smem_budget_for(kSm120, 2)>::value);

}  // namespace fourfold::plan
