// The gated delta rule for one row: what the anchored state and the block's rows before it answer to its key
// and its query. reference/delta.h of the backend has the formulas.
#pragma once

#include <cstdint>

#include "base/token_grain.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/jobs.h"

namespace fourfold::cpu {

// Values are taken this many sixteens at a time; a value's own order of additions is the same for any.
template <class L>
inline constexpr int kValueChunks =
    L::isa == Isa::plain || L::isa == Isa::avx512 || L::isa == Isa::amx ? 4 : 2;

// S0^T k and S0^T q for `Chunks` sixteens of values, the anchor read once. Values that are not there (the
// last sixteen may be short) give lanes that are not read.
template <class L, int Chunks>
void read_anchor(const DeltaJob& job, const float* anchor, std::int64_t first, float* by_key,
                 float* by_query) {
  typename L::F key_sum[Chunks], query_sum[Chunks];
  for (int c = 0; c < Chunks; ++c) key_sum[c] = query_sum[c] = L::zero();
  for (std::int64_t k = 0; k < job.key_dim; ++k) {
    const auto key = L::broadcast(job.key[k]);
    const auto query = L::broadcast(job.query[k]);
    for (int c = 0; c < Chunks; ++c) {
      const std::int64_t at = first + 16 * c;
      const auto row = load_some<L>(anchor + k * job.value_dim + at, job.value_dim - at);
      key_sum[c] = L::fma(key, row, key_sum[c]);
      query_sum[c] = L::fma(query, row, query_sum[c]);
    }
  }
  for (int c = 0; c < Chunks; ++c) {
    const std::int64_t at = first + 16 * c;
    store_some<L>(by_key + at, job.value_dim - at, key_sum[c]);
    store_some<L>(by_query + at, job.value_dim - at, query_sum[c]);
  }
}

inline constexpr std::int64_t kDeltaRows = kTokenGrain;  // between two anchors

// One sixteen of values of one value head: what is known by key, the delta, the answer to the query.
template <class L>
void answer_values(const DeltaJob& job, std::int64_t head, std::int64_t at, const float* key_factors,
                   const float* query_factors, float own_factor, const float* by_key, const float* by_query) {
  const std::int64_t count = job.value_dim - at;
  const auto decay = L::broadcast(job.decay[head * kDeltaRows + kDeltaRows - 1]);
  auto known = L::mul(decay, load_some<L>(by_key + at, count));
  auto answer = L::mul(decay, load_some<L>(by_query + at, count));
  const float* delta_row = job.deltas + head * job.value_dim + at;
  for (std::int64_t j = 0; j < job.row_count; ++j) {
    const auto row = load_some<L>(delta_row + j * job.delta_stride, count);
    known = L::fma(L::broadcast(key_factors[j]), row, known);
    answer = L::fma(L::broadcast(query_factors[j]), row, answer);
  }
  const auto value = load_some<L>(job.values + head * job.value_dim + at, count);
  const auto delta = L::mul(L::broadcast(job.beta[head]), L::sub(value, known));
  store_some<L>(job.delta + head * job.value_dim + at, count, delta);
  store_some<L>(job.out + head * job.value_dim + at, count, L::fma(L::broadcast(own_factor), delta, answer));
}

// scratch: [2, value_dim rounded up to 16]
template <class L>
void delta_rule(const DeltaJob& job, float* scratch) {
  float key_dots[kDeltaRows], query_dots[kDeltaRows];
  for (std::int64_t j = 0; j < job.row_count; ++j) {
    key_dots[j] = dot<L>(job.keys + j * job.key_stride, job.key, job.key_dim);
    query_dots[j] = dot<L>(job.keys + j * job.key_stride, job.query, job.key_dim);
  }
  const float own_factor = dot<L>(job.key, job.query, job.key_dim);
  float* by_key = scratch;
  float* by_query = scratch + (job.value_dim + 15) / 16 * 16;
  for (std::int64_t head = 0; head < job.value_head_count; ++head) {
    const float* anchor = job.anchor + head * job.key_dim * job.value_dim;
    constexpr int chunks = kValueChunks<L>;
    std::int64_t at = 0;
    for (; at + 16 * chunks <= job.value_dim; at += 16 * chunks)
      read_anchor<L, chunks>(job, anchor, at, by_key, by_query);
    for (; at < job.value_dim; at += 16) read_anchor<L, 1>(job, anchor, at, by_key, by_query);

    float key_factors[kDeltaRows], query_factors[kDeltaRows];
    const float* decay = job.decay + head * kDeltaRows;
    for (std::int64_t j = 0; j < job.row_count; ++j) {
      key_factors[j] = decay[j] * key_dots[j];
      query_factors[j] = decay[j] * query_dots[j];
    }
    for (at = 0; at < job.value_dim; at += 16)
      answer_values<L>(job, head, at, key_factors, query_factors, own_factor, by_key, by_query);
  }
}

template <class L>
void move_anchor(const MoveAnchorJob& job) {
  const auto keep = L::broadcast(job.from_factor);
  for (std::int64_t k = 0; k < job.key_dim; ++k) {
    float factors[kDeltaRows];
    for (std::int64_t j = 0; j < job.row_count; ++j)
      factors[j] = job.factors[j] * job.keys[j * job.key_stride + k];
    for (std::int64_t v = 0; v < job.value_dim; v += 16) {
      const std::int64_t count = job.value_dim - v;
      auto sum = L::mul(keep, load_some<L>(job.from + k * job.value_dim + v, count));
      for (std::int64_t j = 0; j < job.row_count; ++j)
        sum =
            L::fma(L::broadcast(factors[j]), load_some<L>(job.deltas + j * job.delta_stride + v, count), sum);
      store_some<L>(job.to + k * job.value_dim + v, count, sum);
    }
  }
}

}  // namespace fourfold::cpu
