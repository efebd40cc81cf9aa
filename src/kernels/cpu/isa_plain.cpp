// The kernels for plain; compiled with that instruction set alone.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lanes_plain.h"
#include "kernels/cpu/table.h"

namespace fourfold::cpu {

constinit const Kernels kPlainKernels = make_table<PlainLanes>();

}  // namespace fourfold::cpu
