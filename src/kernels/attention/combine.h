// Merges what the splits of a row left, divides, multiplies by the sigmoid of the gate and rounds to bf16. A
// block takes one head of one row: combine_head() is for kernels that go on with it. Warp j adds the splits
// of groups j, j + 8, ... (groups of eight splits) in ascending order, then the eight sums are added in
// order: fixed by the splits' numbers alone.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/find_work.h"
#include "kernels/attention/prepare.h"
#include "kernels/attention/softmax.h"
#include "kernels/attention/splits.h"

namespace fourfold::attention {

inline constexpr int kCombineWarps = 8;
inline constexpr int kGroupSplits = 8;

template <int HeadDim>
struct CombineStorage {
  alignas(16) float sum[kCombineWarps][HeadDim];
  float total[kCombineWarps];
  float largest[kCombineWarps];
};

// The partials of one row and head: split i lies i * stride vectors behind `first`.
struct PartialList {
  std::int64_t first = 0;
  std::int64_t stride = 0;
  int splits = 0;
};

// A group of splits as a lane holds it: its columns of every split, and the scale of one split.
template <class Row>
struct SplitGroup {
  float value[kGroupSplits][kLaneColumns<Row>];
  device::F32x2 scale{};  // of split lane % 8
};

template <class Row, class Cta>
FOURFOLD_DEVICE void load_group(Cta cta, const CombineParams& params, const PartialList& list, int group,
                                SplitGroup<Row>& loaded) {
  const int lane_split = group * kGroupSplits + cta.lane() % kGroupSplits;
  loaded.scale = device::F32x2{{kUnseen, 0.0f}};
  if (lane_split < list.splits)
    loaded.scale = cta.load(reinterpret_cast<const device::F32x2*>(params.partial_scale) + list.first +
                            lane_split * list.stride);
#pragma unroll
  for (int i = 0; i < kGroupSplits; ++i) {
    const int split = group * kGroupSplits + i;
    if (split < list.splits)
      load_f32(cta,
               params.partial + (list.first + split * list.stride) * Row::head_dim +
                   cta.lane() * kLaneColumns<Row>,
               loaded.value[i]);
  }
}

// The largest score of all splits and of the sink, known to the whole block.
template <class Row, class Cta>
FOURFOLD_DEVICE float largest_of(Cta cta, const CombineParams& params, const PartialList& list, float sink,
                                 CombineStorage<Row::head_dim>& storage) {
  float largest = sink;
  for (int split = cta.thread(); split < list.splits; split += Row::threads)
    largest = Cta::max(largest, cta.load(params.partial_scale + 2 * (list.first + split * list.stride)));
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) largest = Cta::max(largest, cta.shuffle_xor(largest, mask));
  if (cta.lane() == 0) cta.store_shared(&storage.largest[cta.thread() / 32], largest);
  cta.sync_block();
#pragma unroll
  for (int w = 0; w < kCombineWarps; ++w) largest = Cta::max(largest, cta.load_shared(&storage.largest[w]));
  return largest;
}

template <class Row, class Cta>
FOURFOLD_DEVICE void add_group(Cta cta, const SplitGroup<Row>& group, int count, float largest, float& total,
                               float (&sum)[kLaneColumns<Row>]) {
  const float mine = exp2_weight<Cta>(Cta::add(group.scale.v[0], -largest));
#pragma unroll
  for (int i = 0; i < kGroupSplits; ++i) {
    const float weight = cta.shuffle(mine, i), weights = cta.shuffle(group.scale.v[1], i);
    if (i < count) {
      total = Cta::fma(weight, weights, total);
#pragma unroll
      for (int j = 0; j < kLaneColumns<Row>; ++j) sum[j] = Cta::fma(weight, group.value[i][j], sum[j]);
    }
  }
}

// Two neighbouring columns of the result, to store(column, pair).
template <class Row, class Cta, class Store>
FOURFOLD_DEVICE void finish_columns(Cta cta, const CombineStorage<Row::head_dim>& storage, int warps,
                                    int column, device::F32x2 gate, bool gated, const Store& store) {
  float total = cta.load_shared(&storage.total[0]);
  device::F32x2 sum = cta.load_shared(reinterpret_cast<const device::F32x2*>(&storage.sum[0][column]));
#pragma unroll
  for (int w = 1; w < kCombineWarps; ++w)
    if (w < warps) {
      total = Cta::add(total, cta.load_shared(&storage.total[w]));
      const auto part = cta.load_shared(reinterpret_cast<const device::F32x2*>(&storage.sum[w][column]));
#pragma unroll
      for (int i = 0; i < 2; ++i) sum.v[i] = Cta::add(sum.v[i], part.v[i]);
    }
  const float inverse = Cta::reciprocal(total);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum.v[i] = Cta::mul(sum.v[i], inverse);
    if (gated) sum.v[i] = Cta::mul(sum.v[i], gate_factor<Cta>(gate.v[i]));
  }
  store(column, Cta::pack_bf16(sum.v[0], sum.v[1]));
}

// Where they are. False: the row has no sequence.
template <class Row, class Cta>
FOURFOLD_DEVICE bool find_partials(Cta cta, const CombineParams& params, int row, int head,
                                   PartialList& list) {
  const step::RowPlace place = cta.load(params.tables.rows + row);
  if (place.sequence < 0) return false;
  const device::U32x4 sequence =
      cta.load(reinterpret_cast<const device::U32x4*>(params.tables.sequences + place.sequence));
  const int window = window_of<Row>(params);
  const int before = slots_before(cta, params.tables, place.sequence,
                                  [&](int last, int row_count) { return slots_of(last, row_count, window); });
  const int row_in_sequence = row - static_cast<int>(sequence.v[0]);
  list.first = static_cast<std::int64_t>(before + row_in_sequence) * params.heads + head;
  list.stride = static_cast<std::int64_t>(sequence.v[1]) * params.heads;
  list.splits = split_count(place.position, place.position, window);
  if constexpr (Row::is_windowed)
    list.first += list.stride * (first_split(place.position, window) -
                                 first_split(static_cast<int>(sequence.v[2]), window));
  return true;
}

// The result of one head of a row to store(column, two neighbouring columns as bf16); the whole block.
template <class Row, class Cta, class Store>
FOURFOLD_DEVICE void combine_head(Cta cta, const CombineParams& params, const PartialList& list, int row,
                                  int head, CombineStorage<Row::head_dim>& storage, const Store& store) {
  const int warp = cta.warp(), groups = (list.splits + kGroupSplits - 1) / kGroupSplits;
  SplitGroup<Row> group;
  if (warp < groups) load_group<Row>(cta, params, list, warp, group);
  const int column = 2 * cta.thread();
  const bool gated = params.gate != nullptr;
  device::F32x2 gate{};
  if (gated && column < Row::head_dim)
    gate = cta.load(reinterpret_cast<const device::F32x2*>(params.gate + row * params.gate_stride +
                                                           head * params.gate_head_stride + column));
  float sink = kUnseen;
  if constexpr (Row::is_windowed)
    if (params.sinks != nullptr) sink = Cta::mul(cta.load(params.sinks + head), kLog2E);
  const float largest = largest_of<Row>(cta, params, list, sink, storage);
  // The sink is the first to be added, by the first warp.
  float total = 0.0f;
  if constexpr (Row::is_windowed)
    if (params.sinks != nullptr && warp == 0) total = exp2_weight<Cta>(Cta::add(sink, -largest));
  float sum[kLaneColumns<Row>] = {};
  for (int index = warp; index < groups; index += kCombineWarps) {
    add_group<Row>(cta, group, list.splits - index * kGroupSplits, largest, total, sum);
    if (index + kCombineWarps < groups) load_group<Row>(cta, params, list, index + kCombineWarps, group);
  }
#pragma unroll
  for (int j = 0; j < kLaneColumns<Row>; j += 2)
    cta.store_shared(reinterpret_cast<device::F32x2*>(&storage.sum[warp][cta.lane() * kLaneColumns<Row> + j]),
                     device::F32x2{{sum[j], sum[j + 1]}});
  if (cta.lane() == 0) cta.store_shared(&storage.total[warp], total);
  cta.sync_block();
  if (column < Row::head_dim) finish_columns<Row>(cta, storage, groups, column, gate, gated, store);
}

template <class Row, class Cta>
FOURFOLD_DEVICE void combine(Cta cta, const CombineParams& params) {
  auto& storage = cta.template shared<CombineStorage<Row::head_dim>>();
  cta.wait_predecessors();
  cta.release_successors();
  const int row = cta.block() / params.heads, head = cta.block() - row * params.heads;
  if (row >= params.tables.row_limit) return;
  PartialList list;
  if (!find_partials<Row>(cta, params, row, head, list)) return;
  std::uint16_t* const to =
      params.out + (static_cast<std::int64_t>(row) * params.heads + head) * Row::head_dim;
  combine_head<Row>(cta, params, list, row, head, storage, [&](int column, std::uint32_t pair) {
    cta.store(reinterpret_cast<std::uint32_t*>(to + column), pair);
  });
}

}  // namespace fourfold::attention
