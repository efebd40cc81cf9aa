// must compile
// The control: the same headers, the same assertions, numbers that fit. If this fails, the others fail for
// nothing.
#include "plan/budget.h"
#include "plan/separate_budget.h"

namespace fourfold::plan {

constexpr separate::Kernel kernel{
    .tile = {256, 128, 128}, .epilogue = separate::Epilogue::finalize, .tensor_alignment = 128};
using Storage = separate::KernelStorage<kernel, separate::measure<kernel>().stages>;

static_assert(FitsSharedMemory<sizeof(Storage), Sm120::smem_bytes_per_block>::value);
static_assert(FitsRegisters<288, 168, Sm120::registers_per_sm>::value);
static_assert(FitsRegisterFile<Sm120::registers_per_sm, RoleRegisters<4, 40>, RoleRegisters<8, 232>>::value);
static_assert(FitsThreads<1'024, Sm120::threads_per_block_max>::value);
static_assert(FitsNamedBarriers<16, Sm120::named_barriers>::value);

}  // namespace fourfold::plan
