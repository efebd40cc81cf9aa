// The kernels for CPUs with AMX; compiled with AVX-512, AMX-INT8 and AMX-BF16. What is said of tiles is in
// tiles_amx.h, everything else is AVX-512's.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/tiles_amx.h"

namespace fourfold::cpu {
namespace {

// AVX-512 under another name, so that the two sources share no function.
struct AmxLanes : Avx512Lanes {
  static constexpr Isa isa = Isa::amx;
};

constexpr Kernels amx_table() {
  Kernels table = make_table<AmxLanes>();
  table.multiply_tiles = {.nvfp4 = multiply_tiles<AmxLanes, Nvfp4Tile<AmxLanes>>,
                          .bf16 = multiply_tiles<AmxLanes, Bf16Tile<AmxLanes>>,
                          .e4m3 = multiply_tiles<AmxLanes, E4m3Tile<AmxLanes>>};
  return table;
}

}  // namespace

constinit const Kernels kAmxKernels = amx_table();

}  // namespace fourfold::cpu
