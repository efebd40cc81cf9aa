// The second kernel of a prompt's DeltaNet: chunk after chunk through the state, a block to 32 values of a
// head, a warp to sixteen. A warp keeps its columns of S transposed, as the accumulators of S^T += D^T K:
// packed, they are the A operand of the next chunk's products, and D^T likewise, so that nothing of the state
// passes through shared memory.
//
//   D^T = U^T - S^T W^T,   O^T = (S^T Q^T) diag(e^G) + D^T P^T,   S^T = e^(G end) S^T + D^T diag(e^(G end -
//   G)) K
//
// The chunk's tiles arrive by bulk copies that a warp of its own asks for, in the order of their use: W and
// Q, P with the decays, K. Each has two places, or W and Q alone where shared memory holds no more; a place
// is filled again as soon as the last warp has read it. U comes a chunk ahead, in registers.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/tiles.h"
#include "kernels/device/types.h"
#include "plan/budget.h"

namespace fourfold::delta {

inline constexpr int kScanWarps = 2;
inline constexpr int kScanThreads = 32 * kScanWarps + 32;  // the last warp asks for the tiles
inline constexpr int kScanValues = 16 * kScanWarps;
inline constexpr int kRowStages = 2;  // places of W and Q

// Stages: places of P with the decays, and of K.
template <int D, int Stages>
struct ScanStorage {
  static constexpr int stages = Stages;
  struct Rows {
    alignas(128) std::uint16_t from_state[kBlockRows][D + kTilePad];
    alignas(128) std::uint16_t queries[kBlockRows][D + kTilePad];
  };
  struct Products {
    alignas(128) std::uint16_t products[kBlockRows][kBlockStride];
    alignas(128) float decays[3][kBlockRows];
  };
  struct Keys {
    alignas(128) std::uint16_t columns[D][kBlockStride];
  };
  Rows rows[kRowStages];
  Products products[Stages];
  Keys keys[Stages];
  device::Mbarrier rows_full[kRowStages], rows_empty[kRowStages];
  device::Mbarrier products_full[Stages], products_empty[Stages];
  device::Mbarrier keys_full[Stages], keys_empty[Stages];
};
// Two of everything where a block may have that much.
template <class Arch, int D>
using ScanStorageOf =
    ScanStorage<D,
                plan::smem_budget_for(Arch::facts, 1) >= static_cast<int>(sizeof(ScanStorage<D, 2>)) ? 2 : 1>;

template <class Storage, int D, class Cta>
struct PromptScan {
  static constexpr int kKeyTiles = D / 8, kRowTiles = kBlockRows / 8, kStages = Storage::stages;
  using Products = typename Storage::Products;
  Cta cta;
  const PromptParams& params;
  Storage& storage;
  int head, key_head, value;  // value: the warp's first column of the head
  int first_chunk, chunk_count;
  float state[kKeyTiles][4];  // S^T: rows are values, columns keys

  FOURFOLD_DEVICE std::int64_t tile(int chunk) const {
    return std::int64_t{chunk} * params.layout.value_heads + head;
  }
  FOURFOLD_DEVICE std::int64_t key_tile(int chunk) const {
    return std::int64_t{chunk} * params.layout.key_heads + key_head;
  }
  // The place of a chunk among `stages`, and which time round that is.
  static FOURFOLD_DEVICE std::uint32_t lap(int index, int stages) {
    return static_cast<std::uint32_t>(index / stages & 1);
  }
  // The parts of a prompt's chunk `index`, each when its place has been read: one lane asks for them. A fresh
  // barrier reports its previous phase as complete, so the first lap does not wait.
  FOURFOLD_DEVICE void load_rows(int index) const {
    constexpr int bytes = static_cast<int>(2 * row_tile(D));
    const int at = index % kRowStages, chunk = first_chunk + index;
    auto& rows = storage.rows[at];
    device::Mbarrier* full = &storage.rows_full[at];
    // With one place of K, whoever has read the keys of the chunk before has read the rows of that before it.
    if constexpr (kStages > 1) cta.wait(&storage.rows_empty[at], lap(index, kRowStages) ^ 1u);
    cta.arrive_expect(full, 2 * bytes);
    cta.bulk_load(rows.from_state, params.work.from_state + tile(chunk) * row_tile(D), bytes, full);
    cta.bulk_load(rows.queries, params.work.queries + key_tile(chunk) * row_tile(D), bytes, full);
  }
  FOURFOLD_DEVICE void load_products(int index) const {
    const int at = index % kStages, chunk = first_chunk + index;
    auto& part = storage.products[at];
    device::Mbarrier* full = &storage.products_full[at];
    cta.wait(&storage.products_empty[at], lap(index, kStages) ^ 1u);
    cta.arrive_expect(full, 2 * kProductTile + 4 * kDecayTile);
    cta.bulk_load(part.products, params.work.products + tile(chunk) * kProductTile, 2 * kProductTile, full);
    cta.bulk_load(part.decays, params.work.decays + tile(chunk) * kDecayTile, 4 * kDecayTile, full);
  }
  FOURFOLD_DEVICE void load_keys(int index) const {
    constexpr int bytes = static_cast<int>(2 * column_tile(D));
    const int at = index % kStages, chunk = first_chunk + index;
    device::Mbarrier* full = &storage.keys_full[at];
    cta.wait(&storage.keys_empty[at], lap(index, kStages) ^ 1u);
    cta.arrive_expect(full, bytes);
    cta.bulk_load(storage.keys[at].columns, params.work.key_columns + key_tile(chunk) * column_tile(D), bytes,
                  full);
  }
  // In the order of their use: what is asked for first arrives first.
  FOURFOLD_DEVICE void load_all() const {
#pragma unroll 1
    for (int i = 0; i < chunk_count; ++i) {
      load_rows(i);
      load_products(i);
      load_keys(i);
    }
  }
  // This warp has read a place: it may be filled again.
  FOURFOLD_DEVICE void give_back(device::Mbarrier* empty) const {
    cta.sync_warp();
    if (cta.lane() < Cta::kWarpArrivals) cta.arrive(empty);
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
  FOURFOLD_DEVICE void read_state(const typename Storage::Rows& rows, float (&known)[kRowTiles][4],
                                  float (&answer)[kRowTiles][4]) const {
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
                      load_b_pair(cta, rows.from_state[0], D + kTilePad, 8 * n, 16 * k));
        multiply_pair(cta, answer[n], answer[n + 1], a,
                      load_b_pair(cta, rows.queries[0], D + kTilePad, 8 * n, 16 * k));
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

  FOURFOLD_DEVICE device::F32x2 decay_pair(const Products& part, int which, int n) const {
    return cta.load_shared(
        reinterpret_cast<const device::F32x2*>(&part.decays[which][8 * n + 2 * (cta.lane() & 3)]));
  }
  static FOURFOLD_DEVICE void scale_columns(float (&tile)[4], const device::F32x2& by) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] = Cta::mul(tile[i], by.v[i & 1]);
  }

  // O^T: scaled, then D^T P^T; P is zero above its diagonal.
  FOURFOLD_DEVICE void add_chunk(const Products& part, const float (&delta)[kRowTiles][4],
                                 float (&answer)[kRowTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) scale_columns(answer[n], decay_pair(part, 1, n));
#pragma unroll
    for (int k = 0; k < kBlockRows / 16; ++k) {
      std::uint32_t a[4];
      pack_a<Cta>(delta[2 * k], delta[2 * k + 1], a);
#pragma unroll
      for (int n = 2 * k; n < kRowTiles; n += 2)
        multiply_pair(cta, answer[n], answer[n + 1], a,
                      load_b_pair(cta, part.products[0], kBlockStride, 8 * n, 16 * k));
    }
  }

  // Scaled by the decays; then D^T K is added.
  FOURFOLD_DEVICE void decay_state(const Products& part, float (&delta)[kRowTiles][4]) {
    const float keep = cta.load_shared(&part.decays[1][kBlockRows - 1]);
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] = Cta::mul(keep, state[n][i]);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) scale_columns(delta[n], decay_pair(part, 2, n));
  }
  FOURFOLD_DEVICE void move_state(const typename Storage::Keys& keys, const float (&delta)[kRowTiles][4]) {
#pragma unroll
    for (int k = 0; k < kBlockRows / 16; ++k) {
      std::uint32_t a[4];
      pack_a<Cta>(delta[2 * k], delta[2 * k + 1], a);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2)
        multiply_pair(cta, state[n], state[n + 1], a,
                      load_b_pair(cta, keys.columns[0], kBlockStride, 8 * n, 16 * k));
    }
  }

  // Columns of a transposed tile as rows of the workspace or of the state: `to` has the chunk's first row. A
  // whole chunk, which nearly all are, goes without a question and an address for each number.
  FOURFOLD_DEVICE void store_rows(const float (&tiles)[kRowTiles][4], float* to, std::int64_t stride,
                                  int start, int end) const {
    to += value + (cta.lane() >> 2);
    if (end - start == kBlockRows) {
      float* row = to + 2 * (cta.lane() & 3) * stride;
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) cta.store(row + (i & 1) * stride + 8 * (i >> 1), tiles[n][i]);
        row += 8 * stride;
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * n + 2 * (cta.lane() & 3) + (i & 1);
        if (at >= start && at < end) cta.store(to + (at - start) * stride + 8 * (i >> 1), tiles[n][i]);
      }
  }
  // Deltas and G of rows the state keeps.
  FOURFOLD_DEVICE void keep_rows(const Products& part, const ChunkPlace& place,
                                 const float (&delta)[kRowTiles][4]) const {
    if (place.position < rows_kept_from(place.sequence_end)) return;
    const auto slot = slot_of<D>(params.state, params.layout, place.state_slot);
    const int start = place_in_block(place.position), end = start + place.row_count;
    store_rows(delta, slot.delta(head, place.position), D, start, end);
    const int at = cta.thread();
    if (value < kScanValues && at >= start && at < end)
      cta.store(slot.decay(head, place.position + at - start), cta.load_shared(&part.decays[0][at]));
  }

  // `pairs` has U of the chunk, and of the next one when this returns.
  FOURFOLD_DEVICE void take_chunk(int index, std::uint32_t (&pairs)[kRowTiles][2]) {
    const ChunkPlace place = load_chunk(cta, params.chunks + first_chunk + index);
    const int start = place_in_block(place.position), end = start + place.row_count;
    const int at = index % kStages, rows_at = index % kRowStages;
    float delta[kRowTiles][4], answer[kRowTiles][4];
    cta.wait(&storage.rows_full[rows_at], lap(index, kRowStages));
    read_state(storage.rows[rows_at], delta, answer);
    give_back(&storage.rows_empty[rows_at]);
    subtract_known(pairs, delta);
    if (index + 1 < chunk_count) load_values(first_chunk + index + 1, pairs);
    cta.wait(&storage.products_full[at], lap(index, kStages));
    const Products& part = storage.products[at];
    keep_rows(part, place, delta);
    add_chunk(part, delta, answer);
    store_rows(answer,
               params.work.answers + std::int64_t{place.first_row} * params.layout.value_dim + head * D,
               params.layout.value_dim, start, end);
    if (end == kBlockRows) decay_state(part, delta);
    give_back(&storage.products_empty[at]);
    cta.wait(&storage.keys_full[at], lap(index, kStages));
    if (end == kBlockRows) move_state(storage.keys[at], delta);
    give_back(&storage.keys_empty[at]);
    const int block = place.position / kBlockRows;
    if (end == kBlockRows && block + 1 >= place.sequence_end / kBlockRows - 1) store_anchor(place);
  }
};

template <class Storage, int D, class Cta>
FOURFOLD_DEVICE void prompt_scan(Cta cta, const PromptParams& params) {
  constexpr int slices = D / kScanValues;
  const int item = cta.block() / slices, prompt = item / params.layout.value_heads;
  // The tables are older than the grid before this one.
  const auto words = cta.load(reinterpret_cast<const device::U32x4*>(params.prompts + prompt));
  const int first_chunk = static_cast<int>(words.v[0]), chunk_count = static_cast<int>(words.v[1]);
  const int head = item % params.layout.value_heads, warp = cta.warp();
  PromptScan<Storage, D, Cta> scan{cta,
                                   params,
                                   cta.template shared<Storage>(),
                                   head,
                                   head / params.layout.values_per_key,
                                   kScanValues * (cta.block() % slices) + 16 * warp,
                                   first_chunk,
                                   chunk_count,
                                   {}};
  if (cta.thread() == 0) {
    constexpr int readers = kScanWarps * Cta::kWarpArrivals;
    auto& storage = scan.storage;
    const auto init = [&](device::Mbarrier* full, device::Mbarrier* empty, int count) {
      for (int i = 0; i < count; ++i) {
        cta.init(full + i, 1);
        cta.init(empty + i, readers);
      }
    };
    init(storage.rows_full, storage.rows_empty, kRowStages);
    init(storage.products_full, storage.products_empty, Storage::stages);
    init(storage.keys_full, storage.keys_empty, Storage::stages);
    cta.fence_barrier_init();
  }
  cta.wait_predecessors();
  cta.release_successors();
  cta.sync_block();  // the barriers are there
  if (chunk_count == 0) return;
  if (warp == kScanWarps) {
    if (cta.lane() == 0) scan.load_all();
    return;
  }
  std::uint32_t pairs[PromptScan<Storage, D, Cta>::kRowTiles][2];
  scan.load_values(first_chunk, pairs);
  scan.load_anchor(load_chunk(cta, params.chunks + first_chunk));
#pragma unroll 1
  for (int i = 0; i < chunk_count; ++i) scan.take_chunk(i, pairs);
}

}  // namespace fourfold::delta
