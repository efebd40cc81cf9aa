// must not compile: RegisterDemand<68608, 65536>
// A role split that would wait for registers for ever.
#include "plan/budget.h"

namespace fourfold::plan {

static_assert(FitsRegisterFile<Sm120::registers_per_sm, RoleRegisters<4, 24>, RoleRegisters<8, 256>>::value);

}  // namespace fourfold::plan
