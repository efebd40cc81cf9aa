// Results of a warpgroup to memory, through shared memory: its 64 weight rows of one token are 64 or 128
// consecutive bytes, which leave as 16-byte stores instead of scattered words.
#pragma once

#include <cstdint>

#include "base/macros.h"
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

// The named barrier of a warpgroup; 0 is the block's.
enum class Barrier : int { first_group = 1 };

template <class Cta>
FOURFOLD_DEVICE void sync_group(Cta cta, const GroupPlace& place) {
  cta.barrier_sync(static_cast<int>(Barrier::first_group) + place.group, 128);
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

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group_gate_up(Cta cta, const moe::GemmParams& params, const Item& item,
                                          const Factors& factors, const GroupPlace& place,
                                          const float (&sums)[Row::n / 2], unsigned char* staging) {
  const int lane = Cta::keep(cta.lane());  // or its products would occupy registers all through the main loop
  unsigned char* mine = staging + moe::pair_token(lane) * staging_pitch_bytes(kGateUpRowBytes) +
                        16 * moe::pair_chunk(place.strip, place.tile) + 4 * (lane >> 3);
#pragma unroll
  for (int n = 0; n < Row::n / 8; ++n) {
    if (8 * n >= item.tile.count) break;
    const float c[4] = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
    cta.store_shared(reinterpret_cast<std::uint32_t*>(mine + 8 * n * staging_pitch_bytes(kGateUpRowBytes)),
                     moe::neuron_pair(cta, c, factors.gate, factors.up));
  }
  sync_group(cta, place);  // the four tiles are in the buffer
  const std::int64_t row_bytes = 2 * static_cast<std::int64_t>(params.out_columns);
  const int first_neuron = 16 * (item.first_strip + 2 * place.group);
  if (first_neuron < params.out_columns)
    copy_staged<kGateUpRowBytes>(
        cta, staging,
        static_cast<unsigned char*>(params.out) + item.tile.first_slot * row_bytes + 2 * first_neuron,
        row_bytes, item.tile.count, kGateUpRowBytes);
  sync_group(cta, place);  // the buffer is read
}

// The routing weights of a tile's tokens, spread over the lanes of a warp: a few loads in flight together,
// where a load per use would wait for memory each time.
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

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group_rows(Cta cta, const moe::GemmParams& params, const Item& item,
                                       const Factors& factors, const TokenWeights<Row::n>& weights,
                                       const GroupPlace& place, const float (&sums)[Row::n / 2],
                                       unsigned char* staging) {
  constexpr int pitch = staging_pitch_bytes(kPlainRowBytes);
  constexpr int groups_at_once = sizeof(Row::Storage::staging[0]) / pitch / 8;
  const int lane = Cta::keep(cta.lane()), g = lane >> 2, t = lane & 3;  // kept: as above
  unsigned char* mine = staging + 2 * t * pitch + 32 * (2 * (place.strip & 1) + place.tile) + 4 * g;
  const std::int64_t row_bytes = 2 * static_cast<std::int64_t>(params.out_columns);
  const int first_row = record::kRows * (item.first_strip + 2 * place.group);
  const int valid_bytes = 2 * (params.out_columns - first_row);  // not above zero: past the matrix
  unsigned char* out =
      static_cast<unsigned char*>(params.out) + item.tile.first_slot * row_bytes + 2 * first_row;
#pragma unroll
  for (int first = 0; first < Row::n / 8; first += groups_at_once) {
    if (8 * first >= item.tile.count) break;
#pragma unroll
    for (int n = first; n < first + groups_at_once && n < Row::n / 8; ++n) {
      if (8 * n >= item.tile.count) break;
      const float c[4] = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
#pragma unroll
      for (int b = 0; b < 2; ++b)
        cta.store_shared(reinterpret_cast<std::uint32_t*>(mine + (8 * (n - first) + b) * pitch),
                         moe::two_rows_bf16<Cta>(c, b, factors.gate, weights(cta, n, 2 * t + b)));
    }
    sync_group(cta, place);  // the four tiles are in the buffer
    const int left = item.tile.count - 8 * first;
    copy_staged<kPlainRowBytes>(cta, staging, out + 8 * first * row_bytes, row_bytes,
                                left < 8 * groups_at_once ? left : 8 * groups_at_once, valid_bytes);
    sync_group(cta, place);  // the buffer is read
  }
}

template <class Row, class Cta>
FOURFOLD_DEVICE void finish_group(Cta cta, const moe::GemmParams& params, const Item& item,
                                  const Factors& factors, const TokenWeights<Row::n>& weights,
                                  const GroupPlace& place, const float (&sums)[Row::n / 2],
                                  unsigned char* staging) {
  if (params.op == moe::Op::gate_up)
    finish_group_gate_up<Row>(cta, params, item, factors, place, sums, staging);
  else
    finish_group_rows<Row>(cta, params, item, factors, weights, place, sums, staging);
}

}  // namespace fourfold::moe_gemm
