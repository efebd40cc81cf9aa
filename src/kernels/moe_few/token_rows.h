// GEMM1's tokens on their way into shared memory.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/record/record.h"

namespace fourfold::moe_few {

// By one lane, a bulk copy a token; `full` completes when all have landed.
template <class Cta>
FOURFOLD_DEVICE void copy_token_rows(Cta cta, unsigned char* to, device::Mbarrier* full, const FewParams& few,
                                     const moe::GemmParams& params) {
  const int columns = record::kColumns * params.records;
  cta.arrive_expect(full, few.tokens * 2 * columns);
#pragma unroll 1
  for (int token = 0; token < few.tokens; ++token)
    cta.bulk_load(to + token * row_stride(columns),
                  params.tokens + static_cast<std::int64_t>(token) * 2 * columns, 2 * columns, full);
}

}  // namespace fourfold::moe_few
