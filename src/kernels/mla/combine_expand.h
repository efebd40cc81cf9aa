// What the splits of a row left for one head, merged as attention/combine.h does, and at once times the
// head's matrix: a block makes 64 columns of a head's result, a warp eight of them. The blocks of a head
// repeat the merging, which is cheap; each weight is read by one of them for every row.
//
// A lane has one output's weights, eight neighbouring input columns of every 32, and asks for all of them
// before attention is done: 32 registers for a latent of 256, 64 for 512. The products are those of
// head_linear in its order, from the merged head in bf16: so are the bits.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/attention/combine.h"
#include "kernels/device/types.h"
#include "kernels/mla/head_linear.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::mla {

template <int Latent>
struct CombineExpandStorage {
  attention::CombineStorage<Latent> combine;
  alignas(16) std::uint16_t attended[Latent];  // bf16
};

template <class Row>
using OutputWeights = device::U32x4[Row::head_dim / kStepColumns];

template <class Row, class Cta>
FOURFOLD_DEVICE void ask_output(Cta cta, const HeadLinearParams& params, int head, int out,
                                OutputWeights<Row>& weights) {
  const int t = cta.lane() & 3;
  const std::uint16_t* from =
      params.weight + (static_cast<std::int64_t>(head) * params.out_columns + out) * params.weight_stride +
      8 * t;
#pragma unroll
  for (int step = 0; step < Row::head_dim / kStepColumns; ++step) {
    const bool is_there = out < params.out_columns && kStepColumns * step + 8 * t < params.in_columns;
    weights[step] = {};
    if (is_there)
      weights[step] = cta.load_stream(reinterpret_cast<const device::U32x4*>(from + kStepColumns * step));
  }
}

// Every row of the A operand is the one row there is, or zero; a lane's results are two neighbours.
template <class Row, class Cta>
FOURFOLD_DEVICE device::F32x2 multiply_attended(Cta cta, const HeadLinearParams& params,
                                                const typename Row::Storage& storage,
                                                const OutputWeights<Row>& weights) {
  float sum[4] = {};
#pragma unroll
  for (int step = 0; step < Row::head_dim / kStepColumns; ++step) {
    if (kStepColumns * step >= params.in_columns) break;
    const auto in = cta.load_shared(reinterpret_cast<const device::U32x4*>(
        &storage.attended[kStepColumns * step + 8 * (cta.lane() & 3)]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t a[4] = {in.v[2 * half], 0u, in.v[2 * half + 1], 0u};
      cta.mma_bf16(sum, a, weights[step].v[2 * half], weights[step].v[2 * half + 1]);
    }
  }
  return {{sum[0], sum[1]}};
}

template <class Row, class Cta>
FOURFOLD_DEVICE void combine_expand(Cta cta, const CombineExpandParams& params) {
  auto& storage = cta.template shared<typename Row::Storage>();
  const HeadLinearParams& expand = params.expand;
  const int slices = (expand.out_columns + kExpandColumns - 1) / kExpandColumns;
  const int vector = cta.block() / slices, slice = cta.block() - vector * slices;
  const int row = vector / expand.heads, head = vector - row * expand.heads;
  const int out = slice * kExpandColumns + 8 * cta.warp();
  OutputWeights<Row> weights;
  ask_output<Row>(cta, expand, head, out + (cta.lane() >> 2), weights);
  // Where the row stands was written long before attention began.
  attention::PartialList list;
  const bool is_there = row < params.combine.tables.row_limit &&
                        attention::find_partials<Row>(cta, params.combine, row, head, list);
  cta.wait_predecessors();
  cta.release_successors();
  if (!is_there) return;
  attention::combine_head<Row>(
      cta, params.combine, list, row, head, storage.combine, [&](int column, std::uint32_t pair) {
        cta.store_shared(reinterpret_cast<std::uint32_t*>(&storage.attended[column]), pair);
      });
  cta.sync_block();  // the whole head is merged
  const device::F32x2 sum = multiply_attended<Row>(cta, expand, storage, weights);
  std::uint16_t* to = expand.out + row * expand.out_stride + head * expand.out_head_stride;
  const int column = out + 2 * cta.lane();
  if (cta.lane() < 4 && column < expand.out_columns)
    cta.store(reinterpret_cast<std::uint32_t*>(to + column), Cta::pack_bf16(sum.v[0], sum.v[1]));
  // As in head_linear: the last head's row may be wider.
  if (head == expand.heads - 1 && slice == slices - 1)
    for (int i = 8 * cta.thread(); i < expand.pad_columns; i += 8 * Row::threads)
      cta.store(reinterpret_cast<device::U32x4*>(to + expand.out_head_stride + i), device::U32x4{});
}

}  // namespace fourfold::mla
