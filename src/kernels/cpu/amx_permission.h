// AMX registers are large, so Linux hands them out on request only.
#pragma once

namespace fourfold::cpu {

// Whether this CPU has AMX-BF16 and the kernel lets this process use it. Asks once.
bool amx_is_permitted();

}  // namespace fourfold::cpu
