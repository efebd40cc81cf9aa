// Gated DeltaNet for generated rows: convolution, gates, delta rule and gated norm of one layer in one
// kernel, a block to a value head of a sequence. backend/reference/delta.h has the formulas.
//
// A block holds S (the anchor) in registers: warp w has the rows of keys D/8 * w.., a lane D/32 values. A
// row's sum over the past is always taken in the same order, whatever rows share its step:
//
//   warp w:  its rows of S, times e^G; then rows w, w + 8, .. of the block, up to the row's own eight
//   then:    the eight partial sums, w ascending; then the rows of the row's own eight, ascending
//
// so that rows of one step depend on each other only inside an eight, where a row costs a few dependent
// operations. At the end of a block S moves in registers and is written to the other place.
//
// Before wait_predecessors only constants and what older steps wrote are read: tables, state. The grid before
// this one is the layer's projection, which waits for all before it and writes neither.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/decode_inputs.h"
#include "kernels/delta/decode_one.h"
#include "kernels/delta/decode_rule.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/device/quotient.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

// Rows of the next chunk: it ends with the block.
constexpr int chunk_rows(int position, int end) {
  const int left = end - position, room = kBlockRows - place_in_block(position);
  const int rows = left < room ? left : room;
  return rows < kChunkRows ? rows : kChunkRows;
}

template <int D, class Cta>
FOURFOLD_DEVICE void decode(Cta cta, const DecodeParams& params) {
  const int sequence = device::quotient<Cta>(cta.block(), params.layout.value_heads);
  const auto* at = reinterpret_cast<const device::U32x4*>(params.sequences + sequence);
  const auto words = cta.load(at);
  const step::SequencePlace place{static_cast<std::int32_t>(words.v[0]),
                                  static_cast<std::int32_t>(words.v[1]),
                                  static_cast<std::int32_t>(words.v[2]),
                                  static_cast<std::int32_t>(words.v[3]),
                                  0,
                                  {}};
  if (place.row_count == 0) {
    cta.wait_predecessors();  // without rows: only for what kernels behind this one may rely on
    cta.release_successors();
    return;
  }
  DecodeHead<D, Cta> head(cta, params, sequence, place);
  const DecodeRule<DecodeHead<D, Cta>> rule{head};
  head.load_past();
  if (place.row_count == 1) return decode_one(cta, head);
  head.load_inputs();
  cta.wait_predecessors();
  cta.release_successors();
  const int end = place.position + place.row_count, past = place_in_block(place.position);
  int position = place.position, count = chunk_rows(position, end);
  head.load_rows(position, count, kTaps - 1);
  if (cta.thread() < past) cta.store_shared(head.storage.decay + cta.thread(), head.old_decay);
#pragma unroll 1
  for (;;) {
    cta.template copy_wait<0>();
    cta.sync_block();  // the window, the gates, the block's G
    head.forget_addresses();
    if (head.warp < kGateWarp) head.convolve_rows(position, count);
    if (head.warp == kGateWarp) head.compute_gates(position, count);
    cta.sync_block();
    head.forget_addresses();
    if (past > 0) cta.wait(&head.storage.past_full, 0u);
#pragma unroll 1
    for (int done = 0; done < count;) {
      const int room = 8 - place_in_block(position + done) % 8;
      const int rows = count - done < room ? count - done : room;
      rule.take_rows(cta, position + done, done, rows);
      done += rows;
    }
    position += count;
    if (place_in_block(position) == 0) rule.move_anchor(cta, position / kBlockRows - 1);
    if (position == end) return;
    count = chunk_rows(position, end);
    head.forget_addresses();
    head.load_weights();
    head.load_rows(position, count, 0);
  }
}

}  // namespace fourfold::delta
