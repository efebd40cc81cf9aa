// The kernels for neon; compiled with that instruction set alone.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lanes_neon.h"
#include "kernels/cpu/table.h"

namespace fourfold::cpu {

constinit const Kernels kNeonKernels = make_table<NeonLanes>();

}  // namespace fourfold::cpu
