// must not compile: RoleRegisters<1, 40>
// A lone producer warp cannot change its register count.
#include "plan/budget.h"

namespace fourfold::plan {

static_assert(FitsRegisterFile<Sm120::registers_per_sm, RoleRegisters<1, 40>, RoleRegisters<8, 232>>::value);

}  // namespace fourfold::plan
