#include "backend/cpu/known.h"

#include "backend/cpu/attention.h"
#include "backend/cpu/delta.h"
#include "base/error.h"

namespace fourfold::backend::cpu {
namespace {

void require_one_size(const Program& program, const ExpertSet& set) {
  for (const ExpertMatrices& expert : set.experts) {
    const std::int64_t inner = program.matrix(expert.gate).matrix->rows;
    const std::int64_t first = program.matrix(set.experts.front().gate).matrix->rows;
    if (inner != first)
      fail(Code::unsupported_op, "{}: experts of {} and of {} neurons in one layer", set.name, first, inner);
  }
}

// Sizes come from a file; beyond what kernels keep on their stacks they are refused, not tripped over.
void require_known_sizes(const Program& program) {
  for (const DeltaState& state : program.delta_states) {
    if (state.values_per_key() > kValuesPerKeyMax)
      fail(Code::unsupported_op, "{}: {} value heads share a key head; the CPU backend knows at most {}",
           state.name, state.values_per_key(), kValuesPerKeyMax);
    if (state.conv_taps > kConvTapsMax)
      fail(Code::unsupported_op, "{}: a convolution of {} taps; the CPU backend knows at most {}", state.name,
           state.conv_taps, kConvTapsMax);
  }
  for (const KvCache& cache : program.kv_caches)
    if (cache.format == KvFormat::fp8)
      fail_with_hint(Code::unsupported_op, "Leave out --kv fp8, or run with --backend cuda or sim.",
                     "{}: keys and values in fp8; the CPU backend keeps them in bf16 or f32", cache.name);
  for (const KvCache& cache : program.kv_caches)
    if (cache.head_dim > kHeadDimMax)
      fail(Code::unsupported_op, "{}: heads of {} columns; the CPU backend knows at most {}", cache.name,
           cache.head_dim, kHeadDimMax);
}

}  // namespace

void require_known(const Program& program) {
  for (const ExpertSet& set : program.expert_sets) require_one_size(program, set);
  require_known_sizes(program);
}

}  // namespace fourfold::backend::cpu
