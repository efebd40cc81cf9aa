// The kernels for avx512; compiled with that instruction set alone.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/table.h"

namespace fourfold::cpu {

constinit const Kernels kAvx512Kernels = make_table<Avx512Lanes>();

}  // namespace fourfold::cpu
