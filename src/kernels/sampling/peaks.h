// The first pass over a row of logits: the best key of each group of 64 tokens and the best token of each
// part. A block a part. argmax (one small block a choice) finds the row's best from its parts; for greedy
// choices the two are all there is.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/sampling/keys.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

struct alignas(16) PeaksStorage {
  std::uint64_t best[kPartThreads / 32];
  std::uint32_t not_finite[kPartThreads / 32];
};

// A thread's places in its part: four times four tokens, 512 apart. Sixteen lanes hold a group.
inline constexpr int kPartLoads = kPartTokens / (4 * kPartThreads);

template <class Cta>
FOURFOLD_DEVICE std::uint64_t warp_best(Cta cta, std::uint64_t best) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const std::uint64_t other = cta.shuffle_xor(best, mask);
    best = other > best ? other : best;
  }
  return best;
}

template <class Cta>
FOURFOLD_DEVICE void find_peaks(Cta cta, const ChoiceParams& params) {
  auto& storage = cta.template shared<PeaksStorage>();
  const int warp = cta.warp();
  cta.wait_predecessors();
  cta.release_successors();
  const int parts = parts_of(params.tokens), groups = groups_of(params.tokens);
  const int choice = cta.block() / parts, part = cta.block() - choice * parts;
  if (cta.load(params.choice_rows + choice) < 0) return;
  const float* logits = params.logits + choice * params.stride;
  const int first = part * kPartTokens + cta.thread() * 4;
  Four four[kPartLoads];
#pragma unroll
  for (int i = 0; i < kPartLoads; ++i)
    four[i] = load_four(cta, logits, first + i * 4 * kPartThreads, params.tokens);
  std::uint64_t best = 0;
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kPartLoads; ++i) {
    const int token = first + i * 4 * kPartThreads;
    std::uint32_t peak = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool present = token + j < params.tokens;
      const std::uint32_t key = order_key<Cta>(four[i].value[j]);
      const std::uint64_t entry = present ? entry_of(key, token + j) : 0;
      finite = finite && (!present || is_finite(four[i].value[j]));
      best = entry > best ? entry : best;
      peak = key > peak ? key : peak;
    }
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) {
      const std::uint32_t other = cta.shuffle_xor(peak, mask);
      peak = other > peak ? other : peak;
    }
    const int group = token / kGroupTokens;
    if (params.group_keys != nullptr && cta.lane() % 16 == 0 && group < groups)
      cta.store(params.group_keys + static_cast<std::int64_t>(choice) * groups + group, peak);
  }
  best = warp_best(cta, best);
  const std::uint32_t odd = cta.ballot(!finite);
  if (cta.lane() == 0) {
    cta.store_shared(&storage.best[warp], best);
    cta.store_shared(&storage.not_finite[warp], odd != 0 ? kNotFinite : 0u);
  }
  cta.sync_block();  // every warp's best is there
  if (cta.thread() != 0) return;
  PartBest out{0, 0, 0};
#pragma unroll
  for (int i = 0; i < kPartThreads / 32; ++i) {
    const std::uint64_t other = cta.load_shared(&storage.best[i]);
    out.best = other > out.best ? other : out.best;
    out.not_finite |= cta.load_shared(&storage.not_finite[i]);
  }
  cta.store(params.parts + static_cast<std::int64_t>(choice) * parts + part, out);
}

// The best of a row, by any warp whose lanes all call it: lane l looks at parts l, l + 32, ...
template <class Cta>
FOURFOLD_DEVICE PartBest best_of_parts(Cta cta, const ChoiceParams& params, int choice) {
  const int parts = parts_of(params.tokens);
  PartBest found[kPartsMost / 32];
#pragma unroll
  for (int i = 0; i < kPartsMost / 32; ++i) {
    const int part = i * 32 + cta.lane();
    found[i] = part < parts ? cta.load(params.parts + static_cast<std::int64_t>(choice) * parts + part)
                            : PartBest{0, 0, 0};
  }
  PartBest out = found[0];
#pragma unroll
  for (int i = 1; i < kPartsMost / 32; ++i) {
    out.best = found[i].best > out.best ? found[i].best : out.best;
    out.not_finite |= found[i].not_finite;
  }
  out.best = warp_best(cta, out.best);
  out.not_finite = cta.ballot(out.not_finite != 0) != 0 ? kNotFinite : 0u;
  return out;
}

// By one thread.
template <class Cta>
FOURFOLD_DEVICE void write_choice(Cta cta, const ChoiceParams& params, int choice, int token,
                                  std::uint32_t faults) {
  cta.store(params.chosen + choice, token);
  if (params.chosen_scores != nullptr)
    cta.store(params.chosen_scores + choice, cta.load(params.logits + choice * params.stride + token));
  if (params.faults != nullptr) cta.store(params.faults + choice, faults);
  if (params.draft_tokens == nullptr) return;
  const int place = cta.load(params.draft_places + choice);
  if (place >= 0) cta.store(params.draft_tokens + place, token);
}

// One warp a choice.
template <class Cta>
FOURFOLD_DEVICE void choose_best(Cta cta, const ChoiceParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int choice = cta.block();
  if (cta.load(params.choice_rows + choice) < 0) return;
  const PartBest best = best_of_parts(cta, params, choice);
  if (cta.thread() == 0) write_choice(cta, params, choice, token_of(best.best), best.not_finite);
}

}  // namespace fourfold::sampling
