// The kernels for avx2; compiled with that instruction set alone.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lanes_avx2.h"
#include "kernels/cpu/table.h"

namespace fourfold::cpu {

constinit const Kernels kAvx2Kernels = make_table<Avx2Lanes>();

}  // namespace fourfold::cpu
