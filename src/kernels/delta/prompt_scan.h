// The second kernel of a prompt's DeltaNet: chunk after chunk through the state, a block to 32 values of a
// head, a warp to sixteen. A warp keeps its columns of S transposed, as the accumulators of S^T += D^T K:
// packed, they are the A operand of the next chunk's products, and D^T likewise, so that nothing of the state
// passes through shared memory.
//
//   D^T = U^T - S^T W^T,   O^T = (S^T Q^T) diag(e^G) + D^T P^T,   S^T = e^(G end) S^T + D^T diag(e^(G end -
//   G)) K
//
// The chunk's tiles arrive by bulk copies in two parts, W and Q, then K, P and the decays: one part is on its
// way while the other is used.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/tiles.h"
#include "kernels/device/types.h"

namespace fourfold::delta {

inline constexpr int kScanWarps = 2;
inline constexpr int kScanThreads = 32 * kScanWarps;
inline constexpr int kScanValues = 16 * kScanWarps;

template <int D>
struct ScanStorage {
  alignas(128) std::uint16_t from_state[kBlockRows][D + kTilePad];
  alignas(128) std::uint16_t queries[kBlockRows][D + kTilePad];
  alignas(128) std::uint16_t key_columns[D][kBlockStride];
  alignas(128) std::uint16_t products[kBlockRows][kBlockStride];
  alignas(128) float decays[3][kBlockRows];
  device::Mbarrier first_full;   // from_state, queries
  device::Mbarrier second_full;  // the others
};

template <int D, class Cta>
struct PromptScan {
  static constexpr int kKeyTiles = D / 8, kRowTiles = kBlockRows / 8;
  Cta cta;
  const PromptParams& params;
  ScanStorage<D>& storage;
  int head, key_head, value;  // value: the warp's first column of the head
  float state[kKeyTiles][4];  // S^T: rows are values, columns keys

  FOURFOLD_DEVICE std::int64_t tile(int chunk) const {
    return std::int64_t{chunk} * params.layout.value_heads + head;
  }
  FOURFOLD_DEVICE std::int64_t key_tile(int chunk) const {
    return std::int64_t{chunk} * params.layout.key_heads + key_head;
  }
  // One thread asks for the parts of a chunk.
  FOURFOLD_DEVICE void load_first(int chunk) const {
    constexpr int bytes = static_cast<int>(2 * row_tile(D));
    cta.arrive_expect(&storage.first_full, 2 * bytes);
    cta.bulk_load(storage.from_state, params.work.from_state + tile(chunk) * row_tile(D), bytes,
                  &storage.first_full);
    cta.bulk_load(storage.queries, params.work.queries + key_tile(chunk) * row_tile(D), bytes,
                  &storage.first_full);
  }
  FOURFOLD_DEVICE void load_second(int chunk) const {
    constexpr int bytes = static_cast<int>(2 * column_tile(D));
    cta.arrive_expect(&storage.second_full, bytes + 2 * kProductTile + 4 * kDecayTile);
    cta.bulk_load(storage.key_columns, params.work.key_columns + key_tile(chunk) * column_tile(D), bytes,
                  &storage.second_full);
    cta.bulk_load(storage.products, params.work.products + tile(chunk) * kProductTile, 2 * kProductTile,
                  &storage.second_full);
    cta.bulk_load(storage.decays, params.work.decays + tile(chunk) * kDecayTile, 4 * kDecayTile,
                  &storage.second_full);
  }

  FOURFOLD_DEVICE void load_anchor(const ChunkPlace& place) {
    const float* anchor =
        slot_of<D>(params.state, params.layout, place.state_slot).anchor(place.position / kBlockRows, head) +
        value + (cta.lane() >> 2) + 2 * (cta.lane() & 3) * D;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        state[n][i] =
            place.position < kBlockRows ? 0.0f : cta.load(anchor + (8 * n + (i & 1)) * D + 8 * (i >> 1));
  }
  FOURFOLD_DEVICE void store_anchor(const ChunkPlace& place) const {
    float* anchor = slot_of<D>(params.state, params.layout, place.state_slot)
                        .anchor(place.position / kBlockRows + 1, head) +
                    value + (cta.lane() >> 2) + 2 * (cta.lane() & 3) * D;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) cta.store(anchor + (8 * n + (i & 1)) * D + 8 * (i >> 1), state[n][i]);
  }

  // S^T W^T and S^T Q^T.
  FOURFOLD_DEVICE void read_state(float (&known)[kRowTiles][4], float (&answer)[kRowTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) known[n][i] = answer[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      std::uint32_t a[4];
      pack_a<Cta>(state[2 * k], state[2 * k + 1], a);
#pragma unroll
      for (int n = 0; n < kRowTiles; n += 2) {
        multiply_pair(cta, known[n], known[n + 1], a,
                      load_b_pair(cta, storage.from_state[0], D + kTilePad, 8 * n, 16 * k));
        multiply_pair(cta, answer[n], answer[n + 1], a,
                      load_b_pair(cta, storage.queries[0], D + kTilePad, 8 * n, 16 * k));
      }
    }
  }

  // U^T of the warp's values, as bf16 pairs along the chunk's rows.
  FOURFOLD_DEVICE void load_values(int chunk, std::uint32_t (&pairs)[kRowTiles][2]) const {
    const std::uint16_t* from = params.work.from_values + tile(chunk) * (kBlockRows * D) +
                                (value + (cta.lane() >> 2)) * kBlockRows + 2 * (cta.lane() & 3);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        pairs[n][half] =
            cta.load(reinterpret_cast<const std::uint32_t*>(from + 8 * half * kBlockRows + 8 * n));
  }
  static FOURFOLD_DEVICE void subtract_known(const std::uint32_t (&pairs)[kRowTiles][2],
                                             float (&known)[kRowTiles][4]) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        known[n][2 * half] = Cta::add(low_bf16(pairs[n][half]), -known[n][2 * half]);
        known[n][2 * half + 1] = Cta::add(high_bf16(pairs[n][half]), -known[n][2 * half + 1]);
      }
  }

  FOURFOLD_DEVICE device::F32x2 decay_pair(int which, int n) const {
    return cta.load_shared(
        reinterpret_cast<const device::F32x2*>(&storage.decays[which][8 * n + 2 * (cta.lane() & 3)]));
  }
  static FOURFOLD_DEVICE void scale_columns(float (&tile)[4], const device::F32x2& by) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] = Cta::mul(tile[i], by.v[i & 1]);
  }

  // O^T: scaled, then D^T P^T; P is zero above its diagonal.
  FOURFOLD_DEVICE void add_chunk(const float (&delta)[kRowTiles][4], float (&answer)[kRowTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) scale_columns(answer[n], decay_pair(1, n));
#pragma unroll
    for (int k = 0; k < kBlockRows / 16; ++k) {
      std::uint32_t a[4];
      pack_a<Cta>(delta[2 * k], delta[2 * k + 1], a);
#pragma unroll
      for (int n = 2 * k; n < kRowTiles; n += 2)
        multiply_pair(cta, answer[n], answer[n + 1], a,
                      load_b_pair(cta, storage.products[0], kBlockStride, 8 * n, 16 * k));
    }
  }

  FOURFOLD_DEVICE void move_state(float (&delta)[kRowTiles][4]) {
    const float keep = cta.load_shared(&storage.decays[1][kBlockRows - 1]);
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] = Cta::mul(keep, state[n][i]);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) scale_columns(delta[n], decay_pair(2, n));
#pragma unroll
    for (int k = 0; k < kBlockRows / 16; ++k) {
      std::uint32_t a[4];
      pack_a<Cta>(delta[2 * k], delta[2 * k + 1], a);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2)
        multiply_pair(cta, state[n], state[n + 1], a,
                      load_b_pair(cta, storage.key_columns[0], kBlockStride, 8 * n, 16 * k));
    }
  }

  // Columns of a transposed tile as rows of the workspace or of the state: `to` has the chunk's first row.
  FOURFOLD_DEVICE void store_rows(const float (&tiles)[kRowTiles][4], float* to, std::int64_t stride,
                                  int start, int end) const {
    to += value + (cta.lane() >> 2);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * n + 2 * (cta.lane() & 3) + (i & 1);
        if (at >= start && at < end) cta.store(to + (at - start) * stride + 8 * (i >> 1), tiles[n][i]);
      }
  }
  // Deltas and G of rows the state keeps.
  FOURFOLD_DEVICE void keep_rows(const ChunkPlace& place, const float (&delta)[kRowTiles][4]) const {
    if (place.position < rows_kept_from(place.sequence_end)) return;
    const auto slot = slot_of<D>(params.state, params.layout, place.state_slot);
    const int start = place_in_block(place.position), end = start + place.row_count;
    store_rows(delta, slot.delta(head, place.position), D, start, end);
    const int at = cta.thread();
    if (value < kScanValues && at >= start && at < end)
      cta.store(slot.decay(head, place.position + at - start), cta.load_shared(&storage.decays[0][at]));
  }

  FOURFOLD_DEVICE void take_chunk(int chunk, bool is_last, std::uint32_t phase) {
    const ChunkPlace place = load_chunk(cta, params.chunks + chunk);
    const int start = place_in_block(place.position), end = start + place.row_count;
    std::uint32_t pairs[kRowTiles][2];
    load_values(chunk, pairs);
    float delta[kRowTiles][4], answer[kRowTiles][4];
    cta.wait(&storage.first_full, phase);
    read_state(delta, answer);
    cta.fence_async_proxy();  // the reads come before the copy that writes here next
    cta.sync_block();         // both warps have read the first part
    if (cta.thread() == 0 && !is_last) load_first(chunk + 1);
    subtract_known(pairs, delta);
    cta.wait(&storage.second_full, phase);
    keep_rows(place, delta);
    add_chunk(delta, answer);
    store_rows(answer,
               params.work.answers + std::int64_t{place.first_row} * params.layout.value_dim + head * D,
               params.layout.value_dim, start, end);
    if (end == kBlockRows) move_state(delta);
    cta.fence_async_proxy();
    cta.sync_block();  // and the second
    if (cta.thread() == 0 && !is_last) load_second(chunk + 1);
    const int block = place.position / kBlockRows;
    if (end == kBlockRows && block + 1 >= place.sequence_end / kBlockRows - 1) store_anchor(place);
  }
};

template <int D, class Cta>
FOURFOLD_DEVICE void prompt_scan(Cta cta, const PromptParams& params) {
  constexpr int slices = D / kScanValues;
  cta.wait_predecessors();
  cta.release_successors();
  const int item = cta.block() / slices, prompt = item / params.layout.value_heads;
  const auto words = cta.load(reinterpret_cast<const device::U32x4*>(params.prompts + prompt));
  const int first_chunk = static_cast<int>(words.v[0]), chunk_count = static_cast<int>(words.v[1]);
  if (chunk_count == 0) return;
  const int head = item % params.layout.value_heads;
  PromptScan<D, Cta> scan{cta,
                          params,
                          cta.template shared<ScanStorage<D>>(),
                          head,
                          head / params.layout.values_per_key,
                          kScanValues * (cta.block() % slices) + 16 * cta.warp(),
                          {}};
  if (cta.thread() == 0) {
    cta.init(&scan.storage.first_full, 1);
    cta.init(&scan.storage.second_full, 1);
    cta.fence_barrier_init();
    scan.load_first(first_chunk);
    scan.load_second(first_chunk);
  }
  scan.load_anchor(load_chunk(cta, params.chunks + first_chunk));
  cta.sync_block();  // the barriers are there
#pragma unroll 1
  for (int i = 0; i < chunk_count; ++i)
    scan.take_chunk(first_chunk + i, i + 1 == chunk_count, static_cast<std::uint32_t>(i & 1));
}

}  // namespace fourfold::delta
