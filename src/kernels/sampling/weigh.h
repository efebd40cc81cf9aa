// The second pass, for choices that need the whole row's weights (no top-k): the sum of each group of 64. A
// block a part. Where top-p asks, the sums are of all tokens; without it they are of what min-p leaves, and
// the token is drawn from them directly.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "base/token_weights.h"
#include "kernels/sampling/keys.h"
#include "kernels/sampling/peaks.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

template <class Cta>
FOURFOLD_DEVICE void weigh_groups(Cta cta, const ChoiceParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int parts = parts_of(params.tokens), groups = groups_of(params.tokens);
  const int choice = cta.block() / parts, part = cta.block() - choice * parts;
  if (cta.load(params.choice_rows + choice) < 0) return;
  const SampleRow* row = params.sampling + choice;
  const double temperature = cta.load(&row->temperature), top_p = cta.load(&row->top_p);
  if (temperature == 0.0 || cta.load(&row->top_k) > 0) return;
  const double min_p = top_p < 1.0 ? 0.0 : cta.load(&row->min_p);
  const float* logits = params.logits + choice * params.stride;
  const int first = part * kPartTokens + cta.thread() * 4;
  Four four[kPartLoads];
#pragma unroll
  for (int i = 0; i < kPartLoads; ++i)
    four[i] = load_four(cta, logits, first + i * 4 * kPartThreads, params.tokens);
  const PartBest best = best_of_parts(cta, params, choice);
  if (best.not_finite != 0) return;
  const Scale scale = scale_of<Cta>(value_of_key(key_of(best.best)), temperature);
#pragma unroll
  for (int i = 0; i < kPartLoads; ++i) {
    const int token = first + i * 4 * kPartThreads;
    std::uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum += token + j < params.tokens ? weight_of<Cta>(four[i].value[j], scale, min_p) : 0;
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) sum += cta.shuffle_xor(sum, mask);
    const int group = token / kGroupTokens;
    if (cta.lane() % 16 == 0 && group < groups)
      cta.store(params.group_weights + static_cast<std::int64_t>(choice) * groups + group, sum);
  }
}

}  // namespace fourfold::sampling
