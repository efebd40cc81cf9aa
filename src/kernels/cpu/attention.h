// Softmax attention over one run of positions, and how runs are put together. Runs begin at absolute
// multiples of kAttendPositions and are merged in order, so a row's arithmetic follows from its position.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/jobs.h"

namespace fourfold::cpu {

template <class L>
typename L::F load_cached(const std::uint16_t* p, std::int64_t count) {
  if (count >= 16) return L::load_bf16(p);
  std::uint16_t all[16] = {};
  std::memcpy(all, p, static_cast<std::size_t>(count) * sizeof(std::uint16_t));
  return L::load_bf16(all);
}
template <class L>
typename L::F load_cached(const float* p, std::int64_t count) {
  return load_some<L>(p, count);
}

template <class Element>
const Element* cached_row(const AttendJob& job, const void* base, std::int64_t position) {
  const std::int64_t row =
      static_cast<std::int64_t>(job.pages[position / job.page_tokens]) * job.page_tokens +
      position % job.page_tokens;
  return static_cast<const Element*>(base) + row * job.row_stride;
}

// Scores of `Queries` queries from `first` on; scores: [query][kAttendPositions].
template <class L, class Element, int Queries>
void score_run(const AttendJob& job, std::int64_t first, float (*scores)[kAttendPositions]) {
  const float* queries = job.queries + first * job.head_dim;
  for (std::int64_t position = job.position_begin; position < job.position_end; ++position) {
    const Element* key = cached_row<Element>(job, job.keys, position);
    typename L::F sum[Queries];
    for (int q = 0; q < Queries; ++q) sum[q] = L::zero();
    for (std::int64_t i = 0; i < job.head_dim; i += 16) {
      const auto k = load_cached<L>(key + i, job.head_dim - i);
      for (int q = 0; q < Queries; ++q)
        sum[q] = L::fma(load_some<L>(queries + q * job.head_dim + i, job.head_dim - i), k, sum[q]);
    }
    for (int q = 0; q < Queries; ++q)
      scores[first + q][position - job.position_begin] = L::sum(sum[q]) * job.scale;
  }
}

template <class L, class Element, int Queries>
void weigh_run(const AttendJob& job, std::int64_t first, const float (*weights)[kAttendPositions]) {
  for (std::int64_t i = 0; i < job.head_dim; i += 16) {
    typename L::F sum[Queries];
    for (int q = 0; q < Queries; ++q) sum[q] = L::zero();
    for (std::int64_t position = job.position_begin; position < job.position_end; ++position) {
      const auto value = load_cached<L>(cached_row<Element>(job, job.values, position) + i, job.head_dim - i);
      for (int q = 0; q < Queries; ++q)
        sum[q] = L::fma(L::broadcast(weights[first + q][position - job.position_begin]), value, sum[q]);
    }
    for (int q = 0; q < Queries; ++q)
      store_some<L>(job.sums + (first + q) * job.head_dim + i, job.head_dim - i, sum[q]);
  }
}

// scores become exp(score - largest).
template <class L>
void soften_run(const AttendJob& job, std::int64_t query, float* scores) {
  const std::int64_t count = job.position_end - job.position_begin;
  float most = scores[0];
  for (std::int64_t i = 1; i < count; ++i) most = scores[i] > most ? scores[i] : most;
  auto total = L::zero();
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto weight = exponential<L>(L::sub(load_some<L>(scores + i, count - i), L::broadcast(most)));
    store_some<L>(scores + i, count - i, weight);
    total = L::add(total, load_some<L>(scores + i, count - i));
  }
  job.largest[query] = most;
  job.total[query] = L::sum(total);
}

template <class L, class Element>
void attend_elements(const AttendJob& job) {
  float scores[kAttendQueries][kAttendPositions];
  std::int64_t query = 0;
  for (; query + 8 <= job.query_count; query += 8) score_run<L, Element, 8>(job, query, scores);
  for (; query + 4 <= job.query_count; query += 4) score_run<L, Element, 4>(job, query, scores);
  for (; query < job.query_count; ++query) score_run<L, Element, 1>(job, query, scores);
  for (query = 0; query < job.query_count; ++query) soften_run<L>(job, query, scores[query]);
  query = 0;
  for (; query + 8 <= job.query_count; query += 8) weigh_run<L, Element, 8>(job, query, scores);
  for (; query + 4 <= job.query_count; query += 4) weigh_run<L, Element, 4>(job, query, scores);
  for (; query < job.query_count; ++query) weigh_run<L, Element, 1>(job, query, scores);
}

template <class L>
void attend(const AttendJob& job) {
  if (job.is_bf16)
    attend_elements<L, std::uint16_t>(job);
  else
    attend_elements<L, float>(job);
}

// (largest, total, sums) of the positions before, and of the run after them, into one.
template <class L>
void merge_run(float& largest, float& total, float* sums, float run_largest, float run_total,
               const float* run_sums, std::int64_t head_dim) {
  const float most = run_largest > largest ? run_largest : largest;
  float both[16] = {largest - most, run_largest - most};
  L::store(both, exponential<L>(L::load(both)));
  total = total * both[0] + run_total * both[1];
  largest = most;
  const auto keep = L::broadcast(both[0]);
  const auto add = L::broadcast(both[1]);
  each_pair<L>(sums, run_sums, head_dim, sums,
               [&](auto before, auto run) { return L::fma(run, add, L::mul(before, keep)); });
}

}  // namespace fourfold::cpu
