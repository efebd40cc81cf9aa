// The streaming kernel: grouped GEMM for decode. Each warp reads weight records from global memory into
// registers, multiplies them with the few tokens of their expert, and finishes its strips alone; see
// README.md.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/named_barrier.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_stream/multiply_a16.h"
#include "kernels/moe_stream/multiply_a4.h"
#include "kernels/moe_stream/stream_row.h"
#include "kernels/moe_stream/unit_walk.h"

namespace fourfold::moe_stream {

template <class Row>
using Operands = std::conditional_t<Row::Path::half_tokens, HalfOperands<Row>, Fp4Operands<Row>>;

// Sums of one strip for up to N tokens, as the tensor cores leave them.
template <class Row>
using Sums = float[2][Row::token_tiles][4];

template <class Row>
FOURFOLD_DEVICE void clear(Sums<Row>& sums) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
}

// total = total + segment, in the order of the segments; the first one starts the total.
template <class Row, class Cta>
FOURFOLD_DEVICE void add_segment(Sums<Row>& total, const Sums<Row>& segment, bool first) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        total[m][n][i] = first ? segment[m][n][i] : Cta::add(total[m][n][i], segment[m][n][i]);
}

// The tile list in global memory, written by the router.
struct GlobalTiles {
  const moe::TokenTile* tiles;
  template <class Cta>
  FOURFOLD_DEVICE int expert(Cta cta, int index) const {
    return cta.load(&tiles[index].expert);
  }
  template <class Cta>
  FOURFOLD_DEVICE moe::TokenTile tile(Cta cta, int index) const {
    return cta.load(tiles + index);
  }
  template <class Cta>
  FOURFOLD_DEVICE int token_row(Cta cta, const moe::GemmParams& params, int, const moe::TokenTile& tile,
                                int place) const {
    const int slot = tile.first_slot + place;
    return params.slot_token ? cta.load(params.slot_token + slot) : slot;
  }
};

// What a warp keeps of the token tile it is in.
struct TileContext {
  int index = -1;
  moe::TokenTile tile{};
  float factor = 1.0f;
  float factor_up = 1.0f;
  float next_inverse_scale = 1.0f;
};

// What the epilogue wants to know of a tile.
template <class Row, class Cta, class TileList>
FOURFOLD_DEVICE void describe(Cta cta, TileContext& context, const moe::GemmParams& params,
                              const TileList& tiles, int index) {
  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  context.index = index;
  context.tile = tiles.tile(cta, index);
  context.factor = moe::dot_factor(cta, params.scale, params.token_scale, context.tile.expert, decode);
  if (params.op == moe::Op::gate_up) {
    context.factor_up =
        moe::dot_factor(cta, params.scale_up, params.token_scale, context.tile.expert, decode);
    if constexpr (!Row::Path::half_tokens)
      context.next_inverse_scale = cta.load(params.next_inverse_scale + context.tile.expert);
  }
}

// One group of eight tokens; the factors are those of the two matrices, or 1 where the sums have them
// already.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group(Cta cta, const moe::GemmParams& params, const TileContext& context,
                                  int strip, moe::TokenGroup group, const float (&tile0)[4],
                                  const float (&tile1)[4], float factor, float factor_up) {
  if (params.op == moe::Op::gate_up) {
    if constexpr (Row::Path::half_tokens) {
      moe::store_gate_up_plain<Row::Path::bit_order>(cta, static_cast<std::uint16_t*>(params.out),
                                                     params.out_columns, group, strip, tile0, tile1, factor,
                                                     factor_up, typename Row::Glu(params));
    } else if constexpr (std::is_same_v<typename Row::Format, record::Nvfp4>) {
      moe::store_gate_up_nvfp4(cta, static_cast<unsigned char*>(params.out),
                               params.out_columns / record::kColumns, group, strip, tile0, tile1, factor,
                               factor_up, context.next_inverse_scale, params.rounds_neurons);
    }
  } else if (params.op == moe::Op::down) {
    moe::store_rows_f32(cta, static_cast<float*>(params.out), params.out_columns, group, strip, tile0, tile1,
                        factor, params.slot_weight);
  } else if (params.op == moe::Op::plain) {
    moe::store_rows_bf16(cta, static_cast<std::uint16_t*>(params.out), params.out_columns, group, strip,
                         tile0, tile1, factor, params.slot_weight);
  } else {
    const bool adds = params.op == moe::Op::add_f32;
    auto* out = static_cast<float*>(params.out);
    moe::put_rows_f32(cta, out, params.out_columns, group, strip, 0, tile0, factor, adds);
    moe::put_rows_f32(cta, out, params.out_columns, group, strip, 1, tile1, factor, adds);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_strip(Cta cta, const moe::GemmParams& params, const TileContext& context,
                                  int strip, const Sums<Row>& total) {
  // Rows with biases have no factors.
  constexpr bool adds_bias = Row::Glu::adds_bias;
  constexpr bool scales_rows = !record::kHasBlockScales<typename Row::Format> && !adds_bias;
  [[maybe_unused]] device::F32x2 rows[2];
  if constexpr (scales_rows || adds_bias) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
      rows[m] = scales_rows ? moe::row_factors(cta, params, context.tile.expert, strip, m)
                            : moe::row_biases(cta, params, context.tile.expert, strip, m);
  }
#pragma unroll
  for (int n = 0; n < Row::token_tiles; ++n) {
    const moe::TokenGroup group{context.tile.first_slot + 8 * n, context.tile.count - 8 * n};
    if (group.count <= 0) break;
    if constexpr (scales_rows || adds_bias) {
      float tile[2][4];
      const float upper = params.op == moe::Op::gate_up ? context.factor_up : context.factor;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) tile[m][i] = total[m][n][i];
        if constexpr (scales_rows)
          moe::scale_rows<Cta>(tile[m], context.factor, upper, rows[m]);
        else
          moe::bias_rows<Cta>(tile[m], context.factor, upper, rows[m]);
      }
      // Only the widest rows of the widest records are that short of registers, and those with biases.
      constexpr bool is_short = Row::token_tiles > 4 && (adds_bias || Row::Format::tile_bytes > 1024);
      using Machine = std::conditional_t<is_short, moe::FreshLane<Cta>, Cta>;
      finish_group<Row>(Machine(cta), params, context, strip, group, tile[0], tile[1], 1.0f, 1.0f);
    } else {
      // And those that decode the FP4 order.
      constexpr bool is_short =
          Row::token_tiles > 4 && Row::Path::half_tokens && Row::Path::bit_order == record::BitOrder::fp4;
      using Machine = std::conditional_t<is_short, moe::FreshLane<Cta>, Cta>;
      finish_group<Row>(Machine(cta), params, context, strip, group, total[0][n], total[1][n], context.factor,
                        context.factor_up);
    }
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void leave_segment(Cta cta, typename Row::Storage& storage, int place,
                                   const Sums<Row>& segment) {
  device::F32x4* mine = storage.partial[place];
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < Row::token_tiles; ++n) {
      const float(&c)[4] = segment[m][n];
      cta.store_shared(mine + (m * Row::token_tiles + n) * 32 + cta.lane(),
                       device::F32x4{{c[0], c[1], c[2], c[3]}});
    }
}

// The segments of a shared strip, added in order.
template <class Row, class Cta>
FOURFOLD_DEVICE void add_left_segments(Cta cta, const typename Row::Storage& storage, int first, int segments,
                                       Sums<Row>& total) {
  for (int s = 0; s < segments; ++s) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < Row::token_tiles; ++n) {
        const device::F32x4 part =
            cta.load_shared(storage.partial[first + s] + (m * Row::token_tiles + n) * 32 + cta.lane());
#pragma unroll
        for (int i = 0; i < 4; ++i) total[m][n][i] = s == 0 ? part.v[i] : Cta::add(total[m][n][i], part.v[i]);
      }
  }
}

// The warps that have a segment of a batch of shared strips meet when all are written; the last of them, who
// have no more of them than the others, get a strip's total each. Returns the strip's position in the launch,
// or -1: none is this warp's.
template <class Row, class Cta>
FOURFOLD_DEVICE int gather_batch(Cta cta, const typename Row::Storage& storage, const WarpShare<Row>& warps,
                                 int batch, int warp, Sums<Row>& total) {
  const int strips = warps.strips_of_batch(batch), units = strips * warps.segments;
  const int meeting = units < Row::warps ? units : Row::warps;
  const device::NamedBarrier barrier = device::group_barrier(0);
  cta.barrier_sync(barrier, 32 * meeting);  // every segment of the batch is written
  const int strip = meeting - 1 - warp;
  if (strip < strips) add_left_segments<Row>(cta, storage, strip * warps.segments, warps.segments, total);
  if (batch + strips < warps.rest)
    cta.barrier_sync(barrier, 32 * meeting);  // the sums are read; the next batch may overwrite them
  return strip < strips ? warps.first + batch + strip : -1;
}

// The body: every warp of every block walks its units. `waits`: the tokens come from a predecessor not yet
// waited for.
template <class Row, class Cta, class TileList>
FOURFOLD_DEVICE void stream_tiles(Cta cta, const moe::GemmParams& params, const TileList& tiles,
                                  int tile_count, typename Row::Storage& storage, bool waits) {
  const BlockShare share = block_share(cta, tile_count, params.strips);
  const int warp = cta.warp();
  const WarpShare<Row> warps(share, warp, params.records);
  UnitWalk<Row, Cta, TileList> walk(cta, params, tiles, share, warps, warp);
  Operands<Row> operands;
  TileContext context;
  Unit unit = walk.unit();
  if (!walk.done()) {
#pragma unroll
    for (int r = 0; r < Row::depth; ++r)
      load_record<Row>(cta, operands, r, unit.weights + r * Row::record_bytes);
  }
  if (waits) {  // warps without work, too: what runs after this kernel counts on it
    cta.wait_predecessors();
    cta.release_successors();
  }
  if (walk.done()) return;

  Sums<Row> segment, total;
  for (bool more = true; more;) {
    const bool ends_segment = walk.last_part(unit);
    const int records = walk.records(unit);
    walk.advance();
    const Unit next = walk.unit();
    more = !walk.done();
    if (unit.tile != context.index) {
      describe<Row>(cta, context, params, tiles, unit.tile);
      enter_tile<Row>(cta, operands, params, tiles, unit.tile, context.tile);
    }
    if (unit.part == 0) clear<Row>(segment);
    multiply_unit<Row>(cta, operands, unit.weights, next.weights,
                       unit.segment * kSegmentRecords + unit.part * Row::unit_records, records, segment);
    if (ends_segment) {
      int finished = -1;  // strip of which this warp has the total
      if (Row::splits_strips && unit.shared != kOwn) {
        const int batch = batch_of(unit.shared);
        leave_segment<Row>(cta, storage, place_of(unit.shared), segment);
        if (!more || batch_of(next.shared) != batch) {
          const int position = gather_batch<Row>(cta, storage, warps, batch, warp, total);
          if (position >= 0) {
            // It may be another expert's than this warp's last segment; the operands stay those of the
            // latter.
            const int tile = device::quotient<Cta>(position, params.strips);
            finished = position - tile * params.strips;
            if (tile != context.index) describe<Row>(cta, context, params, tiles, tile);
          }
        }
      } else {
        add_segment<Row, Cta>(total, segment, unit.segment == 0);
        if (unit.segment + 1 == warps.segments) finished = unit.strip;
      }
      if (finished >= 0) finish_strip<Row>(cta, params, context, finished, total);
      if (unit.tile != context.index) context.index = -1;
    }
    unit = next;
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void stream_gemm(Cta cta, const moe::GemmParams& params) {
  if (!params.tables_are_older) {
    cta.wait_predecessors();
    cta.release_successors();
  }
  const GlobalTiles tiles{params.tiles};
  stream_tiles<Row>(cta, params, tiles, cta.load(params.tile_count),
                    cta.template shared<typename Row::Storage>(), params.tables_are_older);
}

}  // namespace fourfold::moe_stream
