// must not compile: FitsSharedMemory<102400, 101376>
// The kernel that asks for 1,024 bytes too many at run time elsewhere, put to our compile-time budget.
#include "plan/budget.h"
#include "plan/separate_budget.h"

namespace fourfold::plan {

constexpr separate::Kernel kernel{.tile = {256, 128, 128}, .epilogue = separate::Epilogue::finalize};
using Storage = separate::KernelStorage<kernel, separate::measure<kernel>().stages>;

static_assert(FitsSharedMemory<sizeof(Storage), Sm120::smem_bytes_per_block>::value);

}  // namespace fourfold::plan
