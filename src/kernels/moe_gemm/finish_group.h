// Results of a warpgroup to memory, through shared memory: its 64 weight rows of one token are 64 or 128
// consecutive bytes, which leave as 16-byte stores instead of scattered words.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/named_barrier.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_gemm/finish_tile.h"
#include "kernels/moe_gemm/tile_row.h"
#include "kernels/moe_gemm/tile_walk.h"

namespace fourfold::moe_gemm {

// Where a math warp of the warpgroup kernel works: one m16 tile of one strip.
struct GroupPlace {
  int group;  // warpgroup
  int strip;  // of the tile of M rows
  int tile;
  FOURFOLD_DEVICE explicit GroupPlace(int warp) : group(warp / 4), strip(warp / 2), tile(warp % 2) {}
};

// An item's scales as they lie in memory: asked for before the main loop, looked at after it.
struct Scales {
  float gate, up, token;
  template <class Cta>
  FOURFOLD_DEVICE Scales(Cta cta, const moe::GemmParams& params, int expert)
      : gate(params.scale ? cta.load(params.scale + expert) : 1.0f),
        up(params.op == moe::Op::gate_up && params.scale_up ? cta.load(params.scale_up + expert) : 1.0f),
        token(params.token_scale ? cta.load(params.token_scale + expert) : 1.0f) {}
};
template <class Row, class Cta>
FOURFOLD_DEVICE Factors factors_of(Cta, const moe::GemmParams& params, const Scales& scales) {
  constexpr float decode = moe::kDecodeFactor<typename Row::Path, typename Row::Format>;
  const float token = Cta::keep(scales.token);
  Factors factors{Cta::mul(Cta::mul(Cta::keep(scales.gate), token), decode), 1.0f, 1.0f};
  if constexpr (kScalesRows<Row> || kAddsBias<Row>)
    factors.up = factors.gate;  // of row slots g + 8, whatever they hold
  if (params.op == moe::Op::gate_up) factors.up = Cta::mul(Cta::mul(Cta::keep(scales.up), token), decode);
  return factors;
}

template <class Cta>
FOURFOLD_DEVICE void sync_group(Cta cta, const GroupPlace& place) {
  cta.barrier_sync(device::group_barrier(place.group), 128);
}

// Tokens [first, first + count) of the staging buffer to their slots; RowBytes of a token are this
// warpgroup's.
template <int RowBytes, class Cta>
FOURFOLD_DEVICE void copy_staged(Cta cta, const unsigned char* staging, unsigned char* out,
                                 std::int64_t row_bytes, int count, int valid_bytes) {
  constexpr int chunks = RowBytes / 16;
  for (int i = Cta::keep(cta.thread()) % 128; i < count * chunks; i += 128) {
    const int token = i / chunks, chunk = i % chunks;
    if (16 * chunk < valid_bytes)
      cta.store(reinterpret_cast<device::U32x4*>(out + token * row_bytes + 16 * chunk),
                cta.load_shared(reinterpret_cast<const device::U32x4*>(
                    staging + token * staging_pitch_bytes(RowBytes) + 16 * chunk)));
  }
}

// A number for each of a tile's tokens (null: 1), spread over the lanes of a warp: a few loads in flight
// together, where a load per use would wait for memory each time.
template <int N>
struct TokenWeights {
  float of_lane[(N + 31) / 32];  // token 32i + lane; tokens beyond the count repeat the last
  template <class Cta>
  FOURFOLD_DEVICE TokenWeights(Cta cta, const float* slot_weight, const moe::TokenTile& tile) {
#pragma unroll
    for (int i = 0; i < (N + 31) / 32; ++i) {
      const int token = 32 * i + cta.lane();
      of_lane[i] =
          moe::weight_of(cta, slot_weight, tile.first_slot + (token < tile.count ? token : tile.count - 1));
    }
  }
  // Of token 8 * group + in_group; all lanes of the warp take part.
  template <class Cta>
  FOURFOLD_DEVICE float operator()(Cta cta, int group, int in_group) const {
    return cta.shuffle(of_lane[group / 4], 8 * (group % 4) + in_group);
  }
};

// Tokens in E4M3 have a factor each, which takes the routing weight along: it is a power of two, or 1, so no
// rounding is added. Asked for behind the main loop, whose sums leave no registers.
template <class Row>
inline constexpr bool kScalesTokens = Row::Path::token_bytes == 1;
template <int N>
struct FactorsOfTokens : TokenWeights<N> {
  template <class Cta>
  FOURFOLD_DEVICE FactorsOfTokens(Cta cta, const moe::GemmParams& params, const moe::TokenTile& tile)
      : TokenWeights<N>(cta, params.token_factor, tile) {
    if (params.op != moe::Op::down || params.slot_weight == nullptr) return;
    const TokenWeights<N> weights(cta, params.slot_weight, tile);
#pragma unroll
    for (int i = 0; i < (N + 31) / 32; ++i) this->of_lane[i] = Cta::mul(this->of_lane[i], weights.of_lane[i]);
  }
};
struct NoFactors {
  template <class Cta>
  FOURFOLD_DEVICE NoFactors(Cta, const moe::GemmParams&, const moe::TokenTile&) {}
};
template <class Row>
using TokenFactors = std::conditional_t<kScalesTokens<Row>, FactorsOfTokens<Row::n>, NoFactors>;

// Routing weights that are asked for before the main loop, and looked at after it.
struct NoWeights {
  template <class Cta>
  FOURFOLD_DEVICE NoWeights(Cta, const float*, const moe::TokenTile&) {}
  template <class Cta>
  FOURFOLD_DEVICE float operator()(Cta, int, int) const {
    return 1.0f;
  }
};
template <class Row>
using AskedWeights = std::conditional_t<kScalesTokens<Row>, NoWeights, TokenWeights<Row::n>>;

// A lane's sums of one group of eight tokens, with the factors of their rows where the format has them, or
// their biases, and the factors of their tokens where the path has them. All lanes of the warp take part.
template <class Row>
struct GroupSums {
  float c[4];
  template <class Cta>
  FOURFOLD_DEVICE GroupSums(Cta cta, const float (&sums)[Row::n / 2], int n, const Factors& factors,
                            const device::F32x2& rows, const TokenFactors<Row>& tokens)
      : c{sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]} {
    if constexpr (kScalesRows<Row>) moe::scale_rows<Cta>(c, factors.gate, factors.up, rows);
    if constexpr (kAddsBias<Row>) moe::bias_rows<Cta>(c, factors.gate, factors.up, rows);
    if constexpr (kScalesTokens<Row>) {
      const int t = Cta::keep(cta.lane()) & 3;
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float factor = tokens(cta, n, 2 * t + b);
        c[b] = Cta::mul(c[b], factor);
        c[2 + b] = Cta::mul(c[2 + b], factor);
      }
    }
  }
};

// The row factors of a warp's tile, or its biases; a tile past the matrix has none and stores nothing.
template <class Row, class Cta>
FOURFOLD_DEVICE device::F32x2 group_row_factors(Cta cta, const moe::GemmParams& params, const Item& item,
                                                const GroupPlace& place) {
  const int strip = item.first_strip + place.strip;
  if constexpr (kScalesRows<Row>)
    if (strip < params.strips) return moe::row_factors(cta, params, item.tile.expert, strip, place.tile);
  if constexpr (kAddsBias<Row>)
    if (strip < params.strips) return moe::row_biases(cta, params, item.tile.expert, strip, place.tile);
  return {{1.0f, 1.0f}};
}

// What is left of the factors once row factors or biases and theirs are in the sums.
template <class Row>
FOURFOLD_DEVICE Factors left_factors(const Factors& factors) {
  return kScalesRows<Row> || kAddsBias<Row> ? Factors{1.0f, 1.0f, 1.0f} : factors;
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group_gate_up(Cta cta, const moe::GemmParams& params, const Item& item,
                                          const Factors& factors, const TokenFactors<Row>& tokens,
                                          const GroupPlace& place, const float (&sums)[Row::n / 2],
                                          unsigned char* staging) {
  const device::F32x2 rows = group_row_factors<Row>(cta, params, item, place);
  const Factors left = left_factors<Row>(factors);
  constexpr int pitch = staging_pitch_bytes(kGateUpRowBytes);
  constexpr int groups_at_once = sizeof(Row::Storage::staging[0]) / pitch / 8;
  const int lane = Cta::keep(cta.lane());  // or its products would occupy registers all through the main loop
  unsigned char* mine = staging + moe::pair_token(lane) * pitch +
                        16 * moe::pair_chunk(place.strip, place.tile) + 4 * (lane >> 3);
  const std::int64_t row_bytes = 2 * static_cast<std::int64_t>(params.out_columns);
  const int first_neuron = 16 * (item.first_strip + 2 * place.group);
  unsigned char* out =
      static_cast<unsigned char*>(params.out) + item.tile.first_slot * row_bytes + 2 * first_neuron;
#pragma unroll
  for (int first = 0; first < Row::n / 8; first += groups_at_once) {
    if (first > 0 && 8 * first >= item.tile.count) break;
#pragma unroll
    for (int n = first; n < first + groups_at_once && n < Row::n / 8; ++n) {
      if (8 * n >= item.tile.count) break;
      const GroupSums<Row> group(cta, sums, n, factors, rows, tokens);
      cta.store_shared(reinterpret_cast<std::uint32_t*>(mine + 8 * (n - first) * pitch),
                       moe::neuron_pair(cta, group.c, left.gate, left.up, typename Row::Glu(params)));
    }
    sync_group(cta, place);  // the four tiles are in the buffer
    const int count = item.tile.count - 8 * first;
    if (first_neuron < 16 * params.strips)
      copy_staged<kGateUpRowBytes>(cta, staging, out + 8 * first * row_bytes, row_bytes,
                                   count < 8 * groups_at_once ? count : 8 * groups_at_once, kGateUpRowBytes);
    sync_group(cta, place);  // the buffer is read
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group_rows(Cta cta, const moe::GemmParams& params, const Item& item,
                                       const Factors& factors, const TokenFactors<Row>& tokens,
                                       const AskedWeights<Row>& weights, const GroupPlace& place,
                                       const float (&sums)[Row::n / 2], unsigned char* staging) {
  const device::F32x2 row_factors = group_row_factors<Row>(cta, params, item, place);
  const Factors left_of = left_factors<Row>(factors);
  constexpr int pitch = staging_pitch_bytes(kPlainRowBytes);
  constexpr int groups_at_once = sizeof(Row::Storage::staging[0]) / pitch / 8;
  const int lane = Cta::keep(cta.lane()), g = lane >> 2, t = lane & 3;  // kept: as above
  unsigned char* mine = staging + 2 * t * pitch + 32 * (2 * (place.strip & 1) + place.tile) + 4 * g;
  const std::int64_t row_bytes = 2 * static_cast<std::int64_t>(params.out_columns);
  const int first_row = record::kRows * (item.first_strip + 2 * place.group);
  // Of the matrix, not of `out`, whose rows may be longer; not above zero: past the matrix.
  const int valid_bytes = 2 * (record::kRows * params.strips - first_row);
  unsigned char* out =
      static_cast<unsigned char*>(params.out) + item.tile.first_slot * row_bytes + 2 * first_row;
#pragma unroll
  for (int first = 0; first < Row::n / 8; first += groups_at_once) {
    if (8 * first >= item.tile.count) break;
#pragma unroll
    for (int n = first; n < first + groups_at_once && n < Row::n / 8; ++n) {
      if (8 * n >= item.tile.count) break;
      const GroupSums<Row> group(cta, sums, n, factors, row_factors, tokens);
#pragma unroll
      for (int b = 0; b < 2; ++b)
        cta.store_shared(reinterpret_cast<std::uint32_t*>(mine + (8 * (n - first) + b) * pitch),
                         moe::two_rows_bf16<Cta>(group.c, b, left_of.gate, weights(cta, n, 2 * t + b)));
    }
    sync_group(cta, place);  // the four tiles are in the buffer
    const int left = item.tile.count - 8 * first;
    copy_staged<kPlainRowBytes>(cta, staging, out + 8 * first * row_bytes, row_bytes,
                                left < 8 * groups_at_once ? left : 8 * groups_at_once, valid_bytes);
    sync_group(cta, place);  // the buffer is read
  }
}

// f32 rows straight from registers: the eight lanes of a token's tile write 64 neighbouring bytes.
template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group_f32(Cta cta, const moe::GemmParams& params, const Item& item,
                                      const Factors& factors, const TokenFactors<Row>& tokens,
                                      const GroupPlace& place, const float (&sums)[Row::n / 2]) {
  const int strip = item.first_strip + place.strip;
  if (strip >= params.strips) return;
  const device::F32x2 rows = group_row_factors<Row>(cta, params, item, place);
#pragma unroll
  for (int n = 0; n < Row::n / 8; ++n) {
    if (8 * n >= item.tile.count) break;
    const GroupSums<Row> group(cta, sums, n, factors, rows, tokens);
    moe::put_rows_f32(cta, static_cast<float*>(params.out), params.out_columns,
                      {item.tile.first_slot + 8 * n, item.tile.count - 8 * n}, strip, place.tile, group.c,
                      1.0f, params.op == moe::Op::add_f32);
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group(Cta cta, const moe::GemmParams& params, const Item& item,
                                  const Factors& factors, const AskedWeights<Row>& weights,
                                  const GroupPlace& place, const float (&sums)[Row::n / 2],
                                  unsigned char* staging) {
  const TokenFactors<Row> tokens(cta, params, item.tile);
  if constexpr (kScalesRows<Row>) {
    if (moe::stores_f32(params.op, false))
      return finish_group_f32<Row>(cta, params, item, factors, tokens, place, sums);
  }
  if (params.op == moe::Op::gate_up)
    finish_group_gate_up<Row>(cta, params, item, factors, tokens, place, sums, staging);
  else
    finish_group_rows<Row>(cta, params, item, factors, tokens, weights, place, sums, staging);
}

}  // namespace fourfold::moe_gemm
