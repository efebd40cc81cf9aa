// What a lane holds of a weight record, whatever its format, and the A operands of the record's bf16
// tensor-core steps made of it. Kernels that read records with 16-bit tokens are written against the two
// types below:
//
//   LaneTile<Format>           one m16 tile, for a warp that owns 16 rows
//   LaneTiles<Format, Count>   Count neighbouring tiles of one record; FP4 reads the scales of both tiles
//                              with one load, and NVFP4 records in either bit order
//
//   load(lane, read, record, tile)  read(pointer) is cta.load_stream or cta.load_shared of a 16-, 8- or
//   4-byte
//                                   word; `record` is the first byte of the record
//   decode<Cta>(..., half, steps)   steps[s] are the four A registers for columns 32*half + 8t + 4s .. +3 of
//                                   lane t: they meet 16-bit pairs 2s and 2s + 1 of the token's 16 bytes at
//                                   column 32*half + 8t
//
// A record is two tiles x two halves x two k16 steps. The factor that complete sums still lack is
// Format::half_decode_factor.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/record/decode.h"
#include "kernels/record/record.h"

namespace fourfold::record {

// ---- FP4 with block scales ----

template <class Format>
struct LaneTile {
  device::U32x4 codes;
  TileScales<Format> scales;

  template <class Read>
  FOURFOLD_DEVICE void load(int lane, const Read& read, const unsigned char* record, int tile) {
    codes = read(reinterpret_cast<const device::U32x4*>(record + payload_offset(tile, lane)));
    scales.words = read(reinterpret_cast<const typename TileScales<Format>::Word*>(
        record + kPayloadBytes + tile_scale_offset<Format>(lane, tile)));
  }
  // decode() in two parts, for kernels that have a better place for the first.
  struct Multipliers {
    std::uint32_t pair_g, pair_g8;
  };
  template <class Cta>
  FOURFOLD_DEVICE Multipliers multipliers(int lane) const {
    return {scale_pair<Cta>(scales, 0, lane), scale_pair<Cta>(scales, 1, lane)};
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(const Multipliers& by, int half, std::uint32_t (&steps)[2][4]) const {
    decode_tile_half<Format, Cta>(codes, by.pair_g, by.pair_g8, half, steps);
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(int lane, int half, std::uint32_t (&steps)[2][4]) const {
    decode<Cta>(multipliers<Cta>(lane), half, steps);
  }
};

template <class Format, int Count, BitOrder order = BitOrder::half>
struct LaneTiles {
  device::U32x4 codes[Count];
  LaneScales<Format> scales;

  template <class Read>
  FOURFOLD_DEVICE void load(int lane, const Read& read, const unsigned char* record, int first_tile) {
#pragma unroll
    for (int m = 0; m < Count; ++m)
      codes[m] = read(reinterpret_cast<const device::U32x4*>(record + payload_offset(first_tile + m, lane)));
    scales.words = read(reinterpret_cast<const typename LaneScales<Format>::Word*>(
        record + kPayloadBytes + lane_scale_offset<Format>(lane)));
  }
  // m: 0 .. Count - 1. A lone tile's number may be known only at run time; both candidates are cheap.
  template <class Cta>
  FOURFOLD_DEVICE void decode(int lane, int m, int first_tile, int half, std::uint32_t (&steps)[2][4]) const {
    const int tile = Count == 2 ? m : first_tile;
    decode_tile_half<Format, Cta, order>(codes[m], scale_pair<Cta, order>(scales, tile, 0, lane),
                                         scale_pair<Cta, order>(scales, tile, 1, lane), half, steps);
  }
};

// ---- bf16: nothing to decode ----

struct NoMultipliers {};

template <>
struct LaneTile<Bf16Format> {
  device::U32x4 step[2][2];  // [half][step]

  template <class Read>
  FOURFOLD_DEVICE void load(int lane, const Read& read, const unsigned char* record, int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_half(lane, read, record, tile, half);
  }
  template <class Read>
  FOURFOLD_DEVICE void load_half(int lane, const Read& read, const unsigned char* record, int tile,
                                 int half) {
#pragma unroll
    for (int s = 0; s < 2; ++s)
      step[half][s] = read(reinterpret_cast<const device::U32x4*>(record + bf16_offset(tile, half, s, lane)));
  }
  using Multipliers = NoMultipliers;
  template <class Cta>
  FOURFOLD_DEVICE Multipliers multipliers(int) const {
    return {};
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(int, int half, std::uint32_t (&steps)[2][4]) const {
    decode<Cta>(NoMultipliers{}, half, steps);
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(NoMultipliers, int half, std::uint32_t (&steps)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) steps[s][r] = step[half][s].v[r];
  }
};

// ---- fp8 ----

template <>
struct LaneTile<Fp8Format> {
  device::U32x4 codes[2];  // [half]: {row slot g, steps 0 and 1; row slot g + 8, steps 0 and 1}

  template <class Read>
  FOURFOLD_DEVICE void load(int lane, const Read& read, const unsigned char* record, int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_half(lane, read, record, tile, half);
  }
  template <class Read>
  FOURFOLD_DEVICE void load_half(int lane, const Read& read, const unsigned char* record, int tile,
                                 int half) {
    codes[half] = read(reinterpret_cast<const device::U32x4*>(record + fp8_offset(tile, half, lane)));
  }
  using Multipliers = NoMultipliers;
  template <class Cta>
  FOURFOLD_DEVICE Multipliers multipliers(int) const {
    return {};
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(int, int half, std::uint32_t (&steps)[2][4]) const {
    decode<Cta>(NoMultipliers{}, half, steps);
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(NoMultipliers, int half, std::uint32_t (&steps)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const device::U32x2 pairs = decode_fp8_word<Cta>(codes[half].v[2 * upper + s]);
        steps[s][upper] = pairs.v[0];
        steps[s][2 + upper] = pairs.v[1];
      }
  }
};

template <class Format, int Count, BitOrder order>
requires(!kHasBlockScales<Format>) struct LaneTiles<Format, Count, order> {
  LaneTile<Format> tile[Count];

  template <class Read>
  FOURFOLD_DEVICE void load(int lane, const Read& read, const unsigned char* record, int first_tile) {
#pragma unroll
    for (int m = 0; m < Count; ++m) tile[m].load(lane, read, record, first_tile + m);
  }
  template <class Cta>
  FOURFOLD_DEVICE void decode(int lane, int m, int, int half, std::uint32_t (&steps)[2][4]) const {
    tile[m].template decode<Cta>(lane, half, steps);
  }
};

}  // namespace fourfold::record
