// Biases and penalties, in place: a row's logits become scores. Only tokens of the request's history change,
// each by one thread; a block a choice. In double precision and rounded once, so the score is the f32 nearest
// to what sample/distribution.cpp works out.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

inline constexpr int kHistoryThreads = 512;
inline constexpr int kSeenInFlight = 4;

// Tokens that may stand in a history or not, each with how often the block has found it there.
struct alignas(16) NewTokens {
  std::int32_t token[kDraftsMost + 1];
  std::int32_t found[kDraftsMost + 1];
};

// How often `token` is among the new ones; marks those as found. A token stands in a history once, so no two
// threads mark the same.
template <class Cta>
FOURFOLD_DEVICE int count_new(Cta cta, NewTokens& tokens, int count, int token) {
  int times = 0;
  for (int i = 0; i < count; ++i) {
    if (cta.load_shared(&tokens.token[i]) != token) continue;
    cta.store_shared(&tokens.found[i], 1);
    ++times;
  }
  return times;
}

// How often new token `mine` is among the new ones when it is the first of its equals and was not found;
// else 0.
template <class Cta>
FOURFOLD_DEVICE int count_first(Cta cta, NewTokens& tokens, int count, int mine) {
  if (cta.load_shared(&tokens.found[mine]) != 0) return 0;
  const int token = cta.load_shared(&tokens.token[mine]);
  int times = 0;
  for (int i = 0; i < count; ++i) {
    if (cta.load_shared(&tokens.token[i]) != token) continue;
    if (i < mine) return 0;
    ++times;
  }
  return times;
}

template <class Cta>
FOURFOLD_DEVICE float score_of(float logit, const SampleRow& row, double bias, bool seen, int count) {
  double score = Cta::add_f64(static_cast<double>(logit), bias);
  if (!seen) return static_cast<float>(score);
  score = score > 0 ? Cta::divide_f64(score, row.repetition_penalty)
                    : Cta::mul_f64(score, row.repetition_penalty);
  if (count > 0)
    score = Cta::add_f64(
        score,
        -Cta::add_f64(row.presence_penalty, Cta::mul_f64(row.frequency_penalty, static_cast<double>(count))));
  return static_cast<float>(score);
}

// A thread's next entries of the history: all read before any is worked on, since each costs two journeys to
// memory.
template <class Cta>
FOURFOLD_DEVICE void score_seen(Cta cta, const ChoiceParams& params, const SampleRow& row, float* logits,
                                const Seen* seen, int first, int entries, NewTokens& drafts,
                                int draft_count) {
  Seen entry[kSeenInFlight];
  float logit[kSeenInFlight];
  bool wanted[kSeenInFlight];
#pragma unroll
  for (int i = 0; i < kSeenInFlight; ++i)
    entry[i] = first + i * kHistoryThreads < entries ? cta.load(seen + first + i * kHistoryThreads)
                                                     : Seen{-1, -1, 0};
#pragma unroll
  for (int i = 0; i < kSeenInFlight; ++i) {
    wanted[i] = entry[i].token >= 0 && entry[i].token < params.tokens;
    logit[i] = wanted[i] ? cta.load(logits + entry[i].token) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kSeenInFlight; ++i) {
    if (!wanted[i]) continue;
    const int drafted = count_new(cta, drafts, draft_count, entry[i].token);
    const int count = (entry[i].count > 0 ? entry[i].count : 0) + drafted;
    cta.store(logits + entry[i].token,
              score_of<Cta>(logit[i], row, entry[i].bias, entry[i].count >= 0 || drafted > 0, count));
  }
}

template <class Cta>
FOURFOLD_DEVICE void score_tokens(Cta cta, const ChoiceParams& params) {
  auto& drafts = cta.template shared<NewTokens>();
  cta.wait_predecessors();
  cta.release_successors();
  const int choice = cta.block();
  const int step_row = cta.load(params.choice_rows + choice);
  if (step_row < 0) return;
  const SampleRow* from = params.sampling + choice;
  const int history = cta.load(&from->history);
  if (history < 0) return;
  const int draft_count = cta.load(&from->draft_count);
  SampleRow row{};
  row.repetition_penalty = cta.load(&from->repetition_penalty);
  row.presence_penalty = cta.load(&from->presence_penalty);
  row.frequency_penalty = cta.load(&from->frequency_penalty);
  if (cta.thread() < draft_count) {
    cta.store_shared(&drafts.token[cta.thread()],
                     cta.load(params.step_tokens + step_row - draft_count + 1 + cta.thread()));
    cta.store_shared(&drafts.found[cta.thread()], 0);
  }
  cta.sync_block();  // the drafts are there
  float* logits = params.logits + choice * params.stride;
  const Seen* seen = params.histories.seen + static_cast<std::int64_t>(history) * params.histories.limit;
  const int entries = cta.load(params.histories.counts + history);
  for (int first = cta.thread(); first < entries; first += kSeenInFlight * kHistoryThreads)
    score_seen(cta, params, row, logits, seen, first, entries, drafts, draft_count);
  cta.sync_block();  // drafts of the history are marked
  if (cta.thread() >= draft_count) return;
  const int token = cta.load_shared(&drafts.token[cta.thread()]);
  const int count = count_first(cta, drafts, draft_count, cta.thread());
  if (count == 0 || token < 0 || token >= params.tokens) return;
  cta.store(logits + token, score_of<Cta>(cta.load(logits + token), row, 0.0, true, count));
}

}  // namespace fourfold::sampling
