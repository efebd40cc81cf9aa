// The first kernel of a prompt's DeltaNet: what of a chunk of 64 rows does not depend on the state, a block
// to a chunk and key head. With A_ij = beta_i (k_i . k_j) e^(G_i - G_j) below the diagonal and T = (I +
// A)^-1, it leaves for the scan over chunks
//
//   U = T diag(beta) V,   W = T diag(beta e^G) K,   P_ij = (q_i . k_j) e^(G_i - G_j) for j <= i
//
// Products run on tensor cores (bf16 operands, f32 sums), T is found in f32 by substitution. Rows a block has
// from an earlier step enter as rows of the identity: their deltas are known and stand in for beta V.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/delta/delta_params.h"
#include "kernels/delta/prompt_rows.h"
#include "kernels/delta/tiles.h"

namespace fourfold::delta {

template <int D, class Cta>
struct PromptSystem {
  static constexpr int kRowStride = PrepareStorage<D>::kRowStride;
  const PromptRows<D, Cta>& rows;
  Cta cta;
  PrepareStorage<D>& storage;
  int warp;

  // Warp w has rows 16 (w % 4).. and columns 32 (w / 4).. of 64 x 64 products.
  FOURFOLD_DEVICE int first_row() const { return 16 * (warp & 3); }
  FOURFOLD_DEVICE int first_column() const { return 32 * (warp >> 2); }

  FOURFOLD_DEVICE bool is_above_diagonal() const { return first_column() > first_row() + 15; }

  FOURFOLD_DEVICE void multiply_keys(float (&by_key)[4][4], float (&by_query)[4][4]) const {
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) by_key[n][i] = by_query[n][i] = 0.0f;
    if (is_above_diagonal()) return;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      std::uint32_t key[4], query[4];
      load_a(cta, storage.keys(), kRowStride, first_row(), k, key);
      load_a(cta, storage.queries(), kRowStride, first_row(), k, query);
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        const auto b = load_b_pair(cta, storage.keys(), kRowStride, first_column() + 8 * n, k);
        multiply_pair(cta, by_key[n], by_key[n + 1], key, b);
        multiply_pair(cta, by_query[n], by_query[n + 1], query, b);
      }
    }
  }

  // Of a warp above the diagonal P is zero, and A is not looked at.
  FOURFOLD_DEVICE void clear_products(int which) const {
    const int g = cta.lane() >> 2, t = cta.lane() & 3;
    std::uint16_t* products = products_of(which) + (first_row() + g) * kBlockStride + first_column() + 2 * t;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        cta.store(reinterpret_cast<std::uint32_t*>(products + 8 * half * kBlockStride + 8 * n), 0u);
  }
  FOURFOLD_DEVICE std::uint16_t* products_of(int which) const {
    const int head = rows.first_value_head() + which;
    return rows.params.work.products +
           (std::int64_t{rows.chunk} * rows.params.layout.value_heads + head) * kProductTile;
  }
  // A to shared memory, P to the workspace.
  FOURFOLD_DEVICE void scale_products(int which, const float (&by_key)[4][4],
                                      const float (&by_query)[4][4]) const {
    const int g = cta.lane() >> 2, t = cta.lane() & 3;
    std::uint16_t* products = products_of(which);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first_row() + g + 8 * half;
      const float decay = cta.load_shared(&storage.decay[which][i]);
      const float beta = cta.load_shared(&storage.beta[which][i]);  // zero for old rows
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int j = first_column() + 8 * n + 2 * t;
        const auto past = cta.load_shared(reinterpret_cast<const device::F32x2*>(&storage.decay[which][j]));
        device::F32x2 a, p;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float power = device::flat_exp<Cta>(Cta::add(decay, -past.v[c])),
                      factor = j + c <= i ? power : 0.0f;
          a.v[c] = j + c < i ? Cta::mul(Cta::mul(beta, by_key[n][2 * half + c]), factor) : 0.0f;
          p.v[c] = Cta::mul(by_query[n][2 * half + c], factor);
        }
        cta.store_shared(reinterpret_cast<device::F32x2*>(storage.system() + i * kSystemStride + j), a);
        cta.store(reinterpret_cast<std::uint32_t*>(products + i * kBlockStride + j),
                  Cta::pack_bf16(p.v[0], p.v[1]));
      }
    }
  }

  // A column of T, two lanes to a column: T_i = e_i - sum over j < i of A_ij T_j, sixteen rows at a time, of
  // which a lane has the even ones or the odd ones until the rows before them are done. Rows above the warp's
  // columns are zero.
  FOURFOLD_DEVICE void solve() const {
    const int other = cta.lane() >> 4, column = 16 * warp + (cta.lane() & 15);
    const float* own = storage.solution() + column;
#pragma unroll 1
    for (int block = warp; block < 4; ++block) {
      const float* rows_of_lane = storage.system() + (16 * block + other) * kSystemStride;
      float r[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) r[i] = 16 * block + 2 * i + other == column ? 1.0f : 0.0f;
#pragma unroll 1
      for (int j = 16 * warp; j < 16 * block; j += 4) {
        float t[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) t[c] = cta.load_shared(own + (j + c) * kSolutionStride);
#pragma unroll
        for (int i = 0; i < 8; ++i) subtract_rows(rows_of_lane + 2 * i * kSystemStride + j, t, r[i]);
      }
      solve_diagonal(16 * block, r);
      cta.sync_warp();  // a column's two lanes wrote rows that both read
    }
  }
  // r -= A_ij T_j for four j.
  FOURFOLD_DEVICE void subtract_rows(const float* system, const float (&t)[4], float& r) const {
    const auto a = cta.load_shared(reinterpret_cast<const device::F32x4*>(system));
#pragma unroll
    for (int c = 0; c < 4; ++c) r = Cta::fma(-a.v[c], t[c], r);
  }
  // Sixteen rows among themselves, eight by eight; both lanes solve all of them.
  FOURFOLD_DEVICE void solve_diagonal(int first, float (&r)[8]) const {
    const int other = cta.lane() >> 4;
    const float* system = storage.system() + first * kSystemStride + first;
    float upper[8], lower[8];
    share_rows(r[0], r[1], r[2], r[3], upper);
    solve_eight(system, upper);
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const float t[4] = {upper[j], upper[j + 1], upper[j + 2], upper[j + 3]};
#pragma unroll
      for (int i = 4; i < 8; ++i) subtract_rows(system + (2 * i + other) * kSystemStride + j, t, r[i]);
    }
    share_rows(r[4], r[5], r[6], r[7], lower);
    solve_eight(system + 8 * kSystemStride + 8, lower);
    float* to = storage.solution() + (first + 8 * other) * kSolutionStride + 16 * warp + (cta.lane() & 15);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Numbers, or the compiler chooses between the arrays, in memory.
      const float early = Cta::keep(upper[i]), late = Cta::keep(lower[i]);
      cta.store_shared(to + i * kSolutionStride, other ? late : early);
    }
  }
  // Eight rows for both lanes: the even ones are the first lane's, the odd ones the other's.
  FOURFOLD_DEVICE void share_rows(float a, float b, float c, float d, float (&rows_of_both)[8]) const {
    const float mine[4] = {a, b, c, d};
    const int lane = cta.lane() & 15;
#pragma unroll
    for (int i = 0; i < 8; ++i) rows_of_both[i] = cta.shuffle(mine[i / 2], lane + 16 * (i % 2));
  }
  // A is strictly below its diagonal.
  FOURFOLD_DEVICE void solve_eight(const float* system, float (&r)[8]) const {
#pragma unroll
    for (int i = 1; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < i; j += 4) {
        const auto a =
            cta.load_shared(reinterpret_cast<const device::F32x4*>(system + i * kSystemStride + j));
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (j + c < i) r[i] = Cta::fma(-a.v[c], r[j + c], r[i]);
      }
  }

  // T in bf16, its columns scaled: by beta (1 for old rows) and by beta e^G. Of two neighbouring columns one
  // lane writes the one, the other the other.
  FOURFOLD_DEVICE void scale_inverse(int which) const {
    const int column = 32 * (warp & 1) + cta.lane(), odd = cta.lane() & 1;
    const float beta = cta.load_shared(&storage.beta[which][column]);
    const float values = column < rows.start ? 1.0f : beta;
    const float state = Cta::mul(beta, device::exp_f32<Cta>(cta.load_shared(&storage.decay[which][column])));
    const float mine = odd ? state : values;
    const float other = cta.shuffle_xor(odd ? values : state, 1);
    // Lane 2n writes columns 2n and 2n + 1 scaled for values, lane 2n + 1 those for the state.
    std::uint16_t* to = storage.inverse(odd) + column - odd;
#pragma unroll 4
    for (int i = 16 * (warp >> 1); i < 16 * (warp >> 1) + 16; ++i) {
      const float own = i >= column - column % 16
                            ? cta.load_shared(storage.solution() + i * kSolutionStride + column)
                            : 0.0f;
      const float next = cta.shuffle_xor(own, 1);
      const float left = odd ? next : own, right = odd ? own : next;
      const float left_scale = odd ? other : mine, right_scale = odd ? mine : other;
      cta.store_shared(reinterpret_cast<std::uint32_t*>(to + i * kBlockStride),
                       Cta::pack_bf16(Cta::mul(left, left_scale), Cta::mul(right, right_scale)));
    }
  }

  // U, transposed: rows are values, columns the chunk's rows.
  FOURFOLD_DEVICE void multiply_values(int head) const {
    const int g = cta.lane() >> 2, t = cta.lane() & 3;
    std::uint16_t* out = rows.params.work.from_values +
                         (std::int64_t{rows.chunk} * rows.params.layout.value_heads + head) * kBlockRows * D;
#pragma unroll 1
    for (int i = warp; i < D / 8; i += kPrepareWarps) {
      const int m = 16 * (i / 2), column = 32 * (i % 2);  // half of the chunk's rows at a time
      float sum[4][4] = {};
#pragma unroll
      for (int k = 0; k < kBlockRows; k += 16) {
        if (k > column + 31) break;  // T is zero above its diagonal
        std::uint32_t a[4];
        load_a(cta, storage.value_columns(), kBlockStride, m, k, a);
#pragma unroll
        for (int n = 0; n < 4; n += 2)
          multiply_pair(cta, sum[n], sum[n + 1], a,
                        load_b_pair(cta, storage.inverse(0), kBlockStride, column + 8 * n, k));
      }
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          cta.store(reinterpret_cast<std::uint32_t*>(out + (m + g + 8 * half) * kBlockRows + column + 8 * n +
                                                     2 * t),
                    Cta::pack_bf16(sum[n][2 * half], sum[n][2 * half + 1]));
    }
  }

  // W: rows are the chunk's, columns keys; a warp has sixteen rows and takes 32 columns at a time (or 16).
  FOURFOLD_DEVICE void multiply_state(int head) const {
    constexpr int columns = D < 64 ? 16 : 32, tiles = columns / 8;
    const int g = cta.lane() >> 2, t = cta.lane() & 3, m = first_row();
    std::uint16_t* out = rows.params.work.from_state +
                         (std::int64_t{rows.chunk} * rows.params.layout.value_heads + head) * row_tile(D);
#pragma unroll 1
    for (int column = columns * (warp >> 2); column < D; column += 2 * columns) {
      float sum[tiles][4] = {};
#pragma unroll
      for (int k = 0; k < kBlockRows; k += 16) {
        if (k > m) break;
        std::uint32_t a[4];
        load_a(cta, storage.inverse(1), kBlockStride, m, k, a);
#pragma unroll
        for (int n = 0; n < tiles; n += 2)
          multiply_pair(cta, sum[n], sum[n + 1], a,
                        load_b_pair(cta, storage.key_columns[0], kBlockStride, column + 8 * n, k));
      }
#pragma unroll
      for (int n = 0; n < tiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          cta.store(reinterpret_cast<std::uint32_t*>(out + (m + g + 8 * half) * kRowStride + column + 8 * n +
                                                     2 * t),
                    Cta::pack_bf16(sum[n][2 * half], sum[n][2 * half + 1]));
    }
  }
};

// Padding travels with its tile and is never looked at; it is written so that no kernel reads
// unwritten bytes.
template <int D, class Cta>
FOURFOLD_DEVICE void write_padding(Cta cta, const PromptRows<D, Cta>& rows) {
  const auto write = [&](std::uint16_t* tile, int count, int stride) {
    for (int i = cta.thread(); i < count; i += kPrepareThreads)
      cta.store(reinterpret_cast<device::U32x4*>(tile + (i + 1) * stride - kTilePad), device::U32x4{});
  };
  const Layout& layout = rows.params.layout;
  const PromptWorkspace& work = rows.params.work;
  const std::int64_t key_tile = std::int64_t{rows.chunk} * layout.key_heads + rows.key_head;
  const std::int64_t tile = std::int64_t{rows.chunk} * layout.value_heads + rows.first_value_head();
  // The tiles of a key head's value heads lie together.
  const int value_rows = layout.values_per_key * kBlockRows;
  write(work.queries + key_tile * row_tile(D), kBlockRows, D + kTilePad);
  write(work.key_columns + key_tile * column_tile(D), D, kBlockStride);
  write(work.from_state + tile * row_tile(D), value_rows, D + kTilePad);
  write(work.products + tile * kProductTile, value_rows, kBlockStride);
}

template <int D, class Cta>
FOURFOLD_DEVICE void prompt_prepare(Cta cta, const PromptParams& params) {
  const int chunk = cta.block() / params.layout.key_heads;
  // The table of chunks is older than the grid before this one.
  const ChunkPlace place = load_chunk(cta, params.chunks + chunk);
  auto& storage = cta.template shared<PrepareStorage<D>>();
  const int start = place_in_block(place.position), warp = cta.warp();
  PromptRows<D, Cta> rows{cta,
                          params,
                          storage,
                          place,
                          chunk,
                          cta.block() % params.layout.key_heads,
                          slot_of<D>(params.state, params.layout, place.state_slot),
                          start,
                          start + place.row_count};
  const PromptSystem<D, Cta> system{rows, cta, storage, warp};
  cta.wait_predecessors();
  cta.release_successors();
  if (place.row_count == 0) return;
  write_padding(cta, rows);
  rows.make_rows();
  float by_key[4][4], by_query[4][4];
  system.multiply_keys(by_key, by_query);
  cta.sync_block();  // queries and keys as rows make room
#pragma unroll 1
  for (int which = 0; which < params.layout.values_per_key; ++which) {
    rows.forget_addresses();
    const int head = rows.first_value_head() + which;
    if (system.is_above_diagonal())
      system.clear_products(which);
    else
      system.scale_products(which, by_key, by_query);
    cta.sync_block();  // the system is there
    rows.forget_addresses();
    if (warp < kSolveWarps)
      system.solve();
    else
      rows.make_values(head);
    cta.sync_block();  // its solution and the values are there
    rows.forget_addresses();
    system.scale_inverse(which);
    cta.sync_block();
    system.multiply_values(head);
    system.multiply_state(head);
    // The next head writes only its system before the block meets again.
  }
}

}  // namespace fourfold::delta
