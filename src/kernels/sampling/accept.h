// Which drafts stand. A sequence's rows are [t, d1..dk], each with the token chosen behind it; draft d_i
// stands when all before it do and the choice of its row's predecessor is d_i. At temperature 0 that is
// greedy verification. With a temperature each choice is a draw with the number of its position, so it is
// rejection sampling with one-point drafts (sample/verify.h): a draft stands with its probability, and
// otherwise the token is one of the target's without it.
//
// What comes next stays on the device: the last token, the row it was chosen from and where it stands are the
// indices of the draft layer's inputs. A block a sequence.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/sampling/sampling_params.h"
#include "kernels/sampling/scores.h"

namespace fourfold::sampling {

struct AcceptStorage {
  NewTokens emitted;
  std::int32_t accepted;
};

// Adds the emitted tokens to the history: counts of those it has, entries for the others.
template <class Cta>
FOURFOLD_DEVICE void note_tokens(Cta cta, AcceptStorage& storage, const AcceptParams& params, int history,
                                 int sequence, int emitted) {
  Seen* seen = params.histories.seen + static_cast<std::int64_t>(history) * params.histories.limit;
  const int entries = cta.load(params.histories.counts + history);
  for (int i = cta.thread(); i < entries; i += kHistoryThreads) {
    const device::U32x2 entry = cta.load(reinterpret_cast<const device::U32x2*>(seen + i));
    const int times = count_new(cta, storage.emitted, emitted, static_cast<std::int32_t>(entry.v[0]));
    if (times == 0) continue;
    const auto count = static_cast<std::int32_t>(entry.v[1]);
    cta.store(&seen[i].count, (count > 0 ? count : 0) + times);
  }
  cta.sync_block();  // tokens of the history are marked
  if (cta.thread() != 0) return;
  int next = entries;
  bool full = false;
  for (int i = 0; i < emitted; ++i) {
    const int times = count_first(cta, storage.emitted, emitted, i);
    if (times == 0) continue;
    full = full || next == params.histories.limit;
    if (next == params.histories.limit) continue;
    cta.store(seen + next++, Seen{cta.load_shared(&storage.emitted.token[i]), times, 0.0});
  }
  cta.store(params.histories.counts + history, next);
  if (params.faults != nullptr) cta.store(params.faults + sequence, full ? 1u : 0u);
}

template <class Cta>
FOURFOLD_DEVICE void accept(Cta cta, const AcceptParams& params) {
  auto& storage = cta.template shared<AcceptStorage>();
  const int warp = cta.warp();
  cta.wait_predecessors();
  cta.release_successors();
  const int sequence = cta.block(), lane = cta.lane();
  const AcceptPlace place = cta.load(params.places + sequence);
  if (place.choice_count == 0) return;
  if (warp == 0) {
    const bool here = lane < place.choice_count;
    const int chosen = here ? cta.load(params.chosen + place.first_choice + lane) : -1;
    const bool drafted = lane + 1 < place.choice_count;
    const bool stands = drafted && cta.load(params.step_tokens + place.first_row + lane + 1) == chosen;
    // The first that does not stand ends the run; the lane behind the last draft never does.
    const int accepted = Cta::lowest_bit(~cta.ballot(stands));
    if (lane <= kDraftsMost) {
      const bool emits = lane <= accepted;
      cta.store(params.emitted + sequence * (kDraftsMost + 1) + lane, emits ? chosen : -1);
      cta.store_shared(&storage.emitted.token[lane], emits ? chosen : -1);
      cta.store_shared(&storage.emitted.found[lane], 0);
    }
    if (lane == accepted) {
      const int row = place.first_row + accepted;
      cta.store(params.accepted + sequence, accepted);
      cta.store(params.next_tokens + sequence, chosen);
      cta.store(params.next_rows + sequence, row);
      cta.store(params.next_positions + sequence, cta.load(&params.rows[row].position) + 1);
      cta.store_shared(&storage.accepted, accepted);
    }
  }
  cta.sync_block();  // the tokens are in shared memory
  if (place.history >= 0)
    note_tokens(cta, storage, params, place.history, sequence, cta.load_shared(&storage.accepted) + 1);
  else if (params.faults != nullptr && cta.thread() == 0)
    cta.store(params.faults + sequence, 0u);
}

}  // namespace fourfold::sampling
