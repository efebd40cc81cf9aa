// The all-reduce in three ways, all with the same bits: parts are added in the order of ranks, then to x.
//
//   one_shot   each rank writes its part into every other rank's memory, then adds up what it received: one
//              trip, (ranks - 1) times the bytes. Writes, never reads, cross the bus: a write is posted, a
//              read waits for its answer.
//   two_shot   the rows are cut into a slice a rank: parts go to the slice's owner, which adds them up and
//              writes the sums back to all ranks: two trips, twice the bytes whatever the number of ranks.
//   host       each rank writes its part once to page-locked memory of the host, the others read it there:
//              needs nothing but a bus.
//
// Where ranks share a GPU the dependents of this kernel start when it has ended: one that came early could
// take the place that another rank's kernels need, and both would wait for ever. On a GPU of its own
// (`overlaps`) the next kernel comes as soon as all blocks of this one are there, and fetches its weights
// while they wait for the other ranks.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/all_reduce/exchange_flags.h"
#include "kernels/all_reduce/ways.h"
#include "kernels/dense/norm_rows.h"

namespace fourfold::all_reduce {

using device::F32x4;

template <class Cta>
FOURFOLD_DEVICE F32x4 sum_of(const F32x4& a, const F32x4& b) {
  return {{Cta::add(a.v[0], b.v[0]), Cta::add(a.v[1], b.v[1]), Cta::add(a.v[2], b.v[2]),
           Cta::add(a.v[3], b.v[3])}};
}

// All ranks' parts of quad `at` of `received`, in order; `own` is this rank's.
template <class Cta>
FOURFOLD_DEVICE F32x4 sum_of_parts(Cta cta, const AllReduceParams& params, const Call& call,
                                   const F32x4* received, std::int64_t at, const F32x4& own) {
  F32x4 part[kRanksMost];
#pragma unroll
  for (int r = 0; r < kRanksMost; ++r) {
    part[r] = own;
    if (r < params.ranks && r != call.rank)
      part[r] = cta.load(received + call.parity_at + r * params.capacity + at);
  }
  F32x4 sum = part[0];
#pragma unroll
  for (int r = 1; r < kRanksMost; ++r)
    if (r < params.ranks) sum = sum_of<Cta>(sum, part[r]);
  return sum;
}

// Quad `at` of this rank's part goes to every place it is read from.
template <Way way, class Cta>
FOURFOLD_DEVICE void send(Cta cta, const AllReduceParams& params, const Call& call, std::int64_t at) {
  const F32x4 value = cta.load(reinterpret_cast<const F32x4*>(call.mine->part) + at);
  const std::int64_t to = call.parity_at + call.rank * params.capacity + at;
  if constexpr (way == Way::host) {
    cta.store(call.mine->receive + to, value);
  } else {
    for (int r = 0; r < params.ranks; ++r)
      if (r != call.rank) cta.store(params.rank[r].receive + to, value);
  }
}

// x + the sum of all parts; this rank's part is cleared for the next half of a layer to add to.
template <class Cta>
FOURFOLD_DEVICE F32x4 receive(Cta cta, const AllReduceParams& params, const Call& call, std::int64_t at) {
  auto* x = reinterpret_cast<F32x4*>(call.mine->x) + at;
  auto* part = reinterpret_cast<F32x4*>(call.mine->part) + at;
  const F32x4 before = cta.load(x);
  const F32x4 after =
      sum_of<Cta>(before, sum_of_parts(cta, params, call, call.mine->receive, at, cta.load(part)));
  cta.store(x, after);
  cta.store(part, F32x4{});
  return after;
}

// What is launched behind this one. Its weights do not depend on the sum; what does, it waits for.
template <class Cta>
FOURFOLD_DEVICE void wait_and_release(Cta cta, const AllReduceParams& params) {
  cta.wait_predecessors();
  if (params.overlaps != 0) cta.release_successors();
}

template <Way way, class Cta>
FOURFOLD_DEVICE void all_reduce(Cta cta, const AllReduceParams& params) {
  static_assert(way != Way::two_shot);
  auto& storage = cta.template shared<ExchangeStorage>();
  wait_and_release(cta, params);
  const Call call = begin_call(cta, params);
  if (call.epoch == kEnded) return;
  const std::int64_t count = static_cast<std::int64_t>(params.rows) * params.columns / 4;
  const std::int64_t first = static_cast<std::int64_t>(call.block) * kThreads + cta.thread();
  const std::int64_t step = static_cast<std::int64_t>(params.blocks) * kThreads;
#pragma unroll 4
  for (std::int64_t at = first; at < count; at += step) send<way>(cta, params, call, at);
  const bool heard = exchange<way == Way::host>(cta, storage, params, call, 0);
#pragma unroll 2
  for (std::int64_t at = first; heard && at < count; at += step) receive(cta, params, call, at);
  end_call(cta, call, heard);
}

struct NormStorage {
  dense::NormStorage norm;
  ExchangeStorage exchange;
};

// The same with whole rows in a block, and the norm of the new x behind it: the bits of norm_rows.
template <Way way, class Cta>
FOURFOLD_DEVICE void all_reduce_norm(Cta cta, const AllReduceParams& params) {
  static_assert(way != Way::two_shot && kThreads == 32 * dense::kNormWarps);
  auto& storage = cta.template shared<NormStorage>();
  const int warp = cta.warp();
  dense::NormValues values, weight;
#pragma unroll
  for (int i = 0; i < dense::kNormPieces; ++i)
    dense::load_eight(cta, params.norm_weight, dense::norm_column(cta, warp, i), params.columns, weight[i]);
  wait_and_release(cta, params);
  const Call call = begin_call(cta, params);
  const int quads = params.columns / 4;
  bool heard = call.epoch != kEnded;
  for (int row = call.block; heard && row < params.rows; row += params.blocks)
#pragma unroll 4
    for (int quad = cta.thread(); quad < quads; quad += kThreads)
      send<way>(cta, params, call, static_cast<std::int64_t>(row) * quads + quad);
  if (heard) heard = exchange<way == Way::host>(cta, storage.exchange, params, call, 0);
  for (int row = call.block; row < params.rows; row += params.blocks) {
#pragma unroll
    for (int i = 0; i < dense::kNormPieces; ++i) {
      const int column = dense::norm_column(cta, warp, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        F32x4 quad{};
        // Zeros where a rank is lost: they will not be used.
        if (heard && column < params.columns)
          quad = receive(cta, params, call, static_cast<std::int64_t>(row) * quads + column / 4 + half);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i][4 * half + j] = quad.v[j];
      }
    }
    dense::norm_and_store(cta, storage.norm, warp, params.columns, params.epsilon, values, weight,
                          call.mine->normed + static_cast<std::int64_t>(row) * params.columns);
    cta.sync_block();  // the sums of the pieces are read
  }
  end_call(cta, call, heard);
}

// The quads of one rank's slice.
struct Slice {
  std::int64_t begin, end;
};
FOURFOLD_DEVICE Slice slice_of(const AllReduceParams& params, std::int64_t count, int rank) {
  const std::int64_t length = (count + params.ranks - 1) / params.ranks;
  const std::int64_t begin = rank * length < count ? rank * length : count;
  return {begin, begin + length < count ? begin + length : count};
}

template <class Cta>
FOURFOLD_DEVICE void all_reduce_two_shot(Cta cta, const AllReduceParams& params) {
  auto& storage = cta.template shared<ExchangeStorage>();
  wait_and_release(cta, params);
  const Call call = begin_call(cta, params);
  if (call.epoch == kEnded) return;
  const std::int64_t count = static_cast<std::int64_t>(params.rows) * params.columns / 4;
  const std::int64_t first = static_cast<std::int64_t>(call.block) * kThreads + cta.thread();
  const std::int64_t step = static_cast<std::int64_t>(params.blocks) * kThreads;
  const std::int64_t place = call.parity_at + call.rank * params.capacity;  // of ours, at the others
  auto* part = reinterpret_cast<F32x4*>(call.mine->part);
  auto* x = reinterpret_cast<F32x4*>(call.mine->x);
  for (int r = 0; r < params.ranks; ++r) {
    if (r == call.rank) continue;
    const Slice slice = slice_of(params, count, r);
#pragma unroll 4
    for (std::int64_t at = slice.begin + first; at < slice.end; at += step) {
      cta.store(params.rank[r].receive + place + (at - slice.begin), cta.load(part + at));
      cta.store(part + at, F32x4{});
    }
  }
  bool heard = exchange<false>(cta, storage, params, call, 0);
  const Slice own = slice_of(params, count, call.rank);
  for (std::int64_t at = own.begin + first; heard && at < own.end; at += step) {
    const F32x4 before = cta.load(x + at);
    const F32x4 sum =
        sum_of_parts(cta, params, call, call.mine->receive, at - own.begin, cta.load(part + at));
    for (int r = 0; r < params.ranks; ++r)
      if (r != call.rank) cta.store(params.rank[r].sums + place + (at - own.begin), sum);
    cta.store(x + at, sum_of<Cta>(before, sum));
    cta.store(part + at, F32x4{});
  }
  if (heard) heard = exchange<false>(cta, storage, params, call, 1);
  for (int r = 0; heard && r < params.ranks; ++r) {
    if (r == call.rank) continue;
    const Slice slice = slice_of(params, count, r);
    const F32x4* sums = call.mine->sums + call.parity_at + r * params.capacity - slice.begin;
#pragma unroll 4
    for (std::int64_t at = slice.begin + first; at < slice.end; at += step)
      cta.store(x + at, sum_of<Cta>(cta.load(x + at), cta.load(sums + at)));
  }
  end_call(cta, call, heard);
}

// The ranks' columns side by side, rank 0's first: the logits. The part stays as it is.
template <Way way, class Cta>
FOURFOLD_DEVICE void all_gather(Cta cta, const AllReduceParams& params) {
  auto& storage = cta.template shared<ExchangeStorage>();
  cta.wait_predecessors();
  const Call call = begin_call(cta, params);
  if (call.epoch == kEnded) return;
  const std::int64_t count = static_cast<std::int64_t>(params.rows) * params.columns / 4;
  const int first = call.block * kThreads + cta.thread(), step = params.blocks * kThreads;
#pragma unroll 4
  for (std::int64_t at = first; at < count; at += step) send<way>(cta, params, call, at);
  const bool heard = exchange<way == Way::host>(cta, storage, params, call, 0);
  // A block has heard of what the same block of another rank sent: it takes the same quads.
  for (std::int64_t at = first; heard && at < count; at += step) {
    const std::int64_t row = 4 * at / params.columns;
    const int column = static_cast<int>(4 * at - row * params.columns);
    for (int r = 0; r < params.ranks; ++r) {
      const F32x4* from = r == call.rank ? reinterpret_cast<const F32x4*>(call.mine->part)
                                         : call.mine->receive + call.parity_at + r * params.capacity;
      const F32x4 quad = cta.load(from + at);
      float* out = call.mine->x + row * params.out_stride +
                   static_cast<std::int64_t>(r) * params.gather_columns + column;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (column + j < params.gather_columns) cta.store(out + j, quad.v[j]);
    }
  }
  end_call(cta, call, heard);
}

}  // namespace fourfold::all_reduce
