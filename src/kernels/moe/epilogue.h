// What becomes of finished dot products. One strip (32 rows, two m16 tiles) times one n8 group of tokens:
// lane (g, t) holds, per tile, slots g and g + 8 for tokens 2t and 2t + 1:  c[0] = (g, 2t), c[1] = (g, 2t+1),
// c[2] = (g+8, 2t), c[3] = (g+8, 2t+1). The row orders of record.h make what a lane holds adjacent in memory.
#pragma once

#include <bit>
#include <cstdint>

#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/macros.h"
#include "base/nvfp4.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/record/record.h"

namespace fourfold::moe {

// Where a group of up to eight tokens goes.
struct TokenGroup {
  std::int64_t first_slot;
  int count;  // tokens that exist; the rest is not stored
};

// The machine with a lane that is worked out where it is used: otherwise what an epilogue derives from it
// occupies registers all through the main loop.
template <class Cta>
struct FreshLane : Cta {
  FOURFOLD_DEVICE explicit FreshLane(Cta cta) : Cta(cta) {}
  FOURFOLD_DEVICE int lane() const { return Cta::keep(Cta::lane()); }
};

// Column order of a bf16 token row.
//   plain: as it is.
//   staged: within each 32 columns, pair 4t + j (columns 8t + 2j, +1) sits at pair 4j + t. That is the order
//   in which the decoded weights meet the 16-byte rows that ldmatrix and wgmma read.
enum class RowLayout { plain, staged };

constexpr int staged_pair(int pair) { return (pair & ~15) | ((pair & 3) << 2) | ((pair >> 2) & 3); }

// ---- factors of single rows ----

// The two numbers of rows a lane needs of a tile, of slots g and g + 8: of [experts][32 * strips].
template <class Cta>
FOURFOLD_DEVICE device::F32x2 row_numbers(Cta cta, const GemmParams& params, const float* of_rows, int expert,
                                          int strip, int tile) {
  const float* rows = of_rows + static_cast<std::int64_t>(expert) * params.strips * record::kRows;
  const int g = Cta::keep(cta.lane()) >> 2;
  if (params.op == Op::gate_up) {
    const int neuron = record::row_of_slot(record::RowOrder::gate_up, record::BitOrder::half, strip, tile, g);
    return {{cta.load(rows + neuron), cta.load(rows + params.strips * (record::kRows / 2) + neuron)}};
  }
  return cta.load(
      reinterpret_cast<const device::F32x2*>(rows + record::kRows * strip + record::kRows / 2 * tile) + g);
}
template <class Cta>
FOURFOLD_DEVICE device::F32x2 row_factors(Cta cta, const GemmParams& params, int expert, int strip,
                                          int tile) {
  if (!params.row_scale) return {{1.0f, 1.0f}};
  return row_numbers(cta, params, params.row_scale, expert, strip, tile);
}
template <class Cta>
FOURFOLD_DEVICE device::F32x2 row_biases(Cta cta, const GemmParams& params, int expert, int strip, int tile) {
  if (!params.bias) return {{0.0f, 0.0f}};
  return row_numbers(cta, params, params.bias, expert, strip, tile);
}

// A lane's sums of a tile times the factors of the matrix and then of their rows; what follows has factor 1.
template <class Cta>
FOURFOLD_DEVICE void scale_rows(float (&c)[4], float factor_g, float factor_g8, const device::F32x2& rows) {
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = Cta::mul(Cta::mul(c[i], i < 2 ? factor_g : factor_g8), rows.v[i / 2]);
}

// The same times the factors of the matrix, plus the biases of their rows.
template <class Cta>
FOURFOLD_DEVICE void bias_rows(float (&c)[4], float factor_g, float factor_g8, const device::F32x2& biases) {
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = Cta::add(Cta::mul(c[i], i < 2 ? factor_g : factor_g8), biases.v[i / 2]);
}

// ---- gate/up, 16-bit tokens ---- Glu: SwiGlu or another of gemm_params.h

template <class Cta, class Glu = SwiGlu>
FOURFOLD_DEVICE float neuron(const float (&c)[4], int token, float gate_factor, float up_factor,
                             const Glu& glu = Glu()) {
  return glu.template neuron<Cta>(Cta::mul(c[token], gate_factor), Cta::mul(c[2 + token], up_factor));
}

// Where a lane's pair of neurons of a tile belongs: neurons 8(g/2) + 2j and + 1 of the 32 that two strips
// make, for token 2t + g%2. In the staged order that is word g/2 of chunk j.
constexpr int pair_token(int lane) { return 2 * (lane & 3) + ((lane >> 2) & 1); }
constexpr int pair_chunk(int strip, int tile) { return 2 * (strip & 1) + tile; }

// A lane's sums give one neuron for tokens 2t and 2t + 1; lane g^1 has the neighbouring neuron. Each keeps
// one token and takes the other neuron of it. All lanes of the warp take part.
template <class Cta, class Glu = SwiGlu>
FOURFOLD_DEVICE std::uint32_t neuron_pair(Cta cta, const float (&c)[4], float gate_factor, float up_factor,
                                          const Glu& glu = Glu()) {
  const std::uint32_t own = Cta::pack_bf16(neuron<Cta>(c, 0, gate_factor, up_factor, glu),
                                           neuron<Cta>(c, 1, gate_factor, up_factor, glu));
  const std::uint32_t other = cta.shuffle_xor(own, 4);
  return Cta::byte_permute(own, other, (cta.lane() & 4) ? 0x3276u : 0x5410u);
}

// Both tiles of a strip.
template <RowLayout Layout, class Cta, class Glu = SwiGlu>
FOURFOLD_DEVICE void store_gate_up_bf16(Cta cta, std::uint16_t* out, int columns, TokenGroup group, int strip,
                                        const float (&tile0)[4], const float (&tile1)[4], float gate_factor,
                                        float up_factor, const Glu& glu = Glu()) {
  const std::uint32_t first = neuron_pair(cta, tile0, gate_factor, up_factor, glu);
  const std::uint32_t second = neuron_pair(cta, tile1, gate_factor, up_factor, glu);
  const int token = pair_token(cta.lane()), in_tile = cta.lane() >> 3;
  if (token >= group.count) return;
  auto* row = reinterpret_cast<std::uint32_t*>(out + (group.first_slot + token) * columns) + 16 * (strip / 2);
  if constexpr (Layout == RowLayout::plain) {
    cta.store(reinterpret_cast<device::U32x2*>(row + 4 * in_tile + pair_chunk(strip, 0)),
              device::U32x2{{first, second}});
  } else {
    cta.store(row + 4 * pair_chunk(strip, 0) + in_tile, first);
    cta.store(row + 4 * pair_chunk(strip, 1) + in_tile, second);
  }
}

// One tile alone (a warp that owns 16 rows), staged.
template <class Cta, class Glu = SwiGlu>
FOURFOLD_DEVICE void store_gate_up_bf16(Cta cta, std::uint16_t* out, int columns, TokenGroup group, int strip,
                                        int tile, const float (&c)[4], float gate_factor, float up_factor,
                                        const Glu& glu = Glu()) {
  const std::uint32_t pair = neuron_pair(cta, c, gate_factor, up_factor, glu);
  const int token = pair_token(cta.lane());
  if (token >= group.count) return;
  auto* row = reinterpret_cast<std::uint32_t*>(out + (group.first_slot + token) * columns) + 16 * (strip / 2);
  cta.store(row + 4 * pair_chunk(strip, tile) + (cta.lane() >> 3), pair);
}

// ---- gate/up, 16-bit tokens, records in fp4 order: neurons 16*strip + 2g (tile 0) and + 1 (tile 1) ----

// The two neurons of a token lie in one lane already: no lane asks another.
template <class Cta>
FOURFOLD_DEVICE void store_gate_up_fp4_order(Cta cta, std::uint16_t* out, int columns, TokenGroup group,
                                             int strip, const float (&tile0)[4], const float (&tile1)[4],
                                             float gate_factor, float up_factor) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int token = 2 * t + b;
    if (token >= group.count) continue;
    auto* row = reinterpret_cast<std::uint32_t*>(out + (group.first_slot + token) * columns + 16 * strip) + g;
    cta.store(row, Cta::pack_bf16(neuron<Cta>(tile0, b, gate_factor, up_factor),
                                  neuron<Cta>(tile1, b, gate_factor, up_factor)));
  }
}

// Both tiles of a strip as the records of `order` have them, into a plain row.
template <record::BitOrder order, class Cta, class Glu = SwiGlu>
FOURFOLD_DEVICE void store_gate_up_plain(Cta cta, std::uint16_t* out, int columns, TokenGroup group,
                                         int strip, const float (&tile0)[4], const float (&tile1)[4],
                                         float gate_factor, float up_factor, const Glu& glu = Glu()) {
  static_assert(order == record::BitOrder::half || !Glu::adds_bias);
  if constexpr (order == record::BitOrder::fp4)
    store_gate_up_fp4_order(cta, out, columns, group, strip, tile0, tile1, gate_factor, up_factor);
  else
    store_gate_up_bf16<RowLayout::plain>(cta, out, columns, group, strip, tile0, tile1, gate_factor,
                                         up_factor, glu);
}

// ---- gate/up, FP4 tokens: neurons 16*strip + 2g (tile 0) and + 1 (tile 1) ----

// A strip's 16 neurons are one 16-block of the next GEMM's token: its largest value lies in the eight lanes
// of one t. All lanes of the warp take part, and all eight places are stored: places without a token hold
// zeros, so that every byte of a token record is written. records: K / 64 of the next GEMM. rounds: to bf16
// first. NVFP4 only (a block of 16).
template <class Cta>
FOURFOLD_DEVICE void store_gate_up_nvfp4(Cta cta, unsigned char* out, int records, TokenGroup group,
                                         int strip, const float (&tile0)[4], const float (&tile1)[4],
                                         float gate_factor, float up_factor, float inverse_input_scale,
                                         bool rounds) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
  const int column = 16 * strip + 2 * g;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    float even = neuron<Cta>(tile0, b, gate_factor, up_factor);
    float odd = neuron<Cta>(tile1, b, gate_factor, up_factor);
    if (rounds) {
      const std::uint32_t pair = Cta::pack_bf16(even, odd);
      even = std::bit_cast<float>(pair << 16);
      odd = std::bit_cast<float>(pair & 0xFFFF0000u);
    }
    float amax = Cta::max(Cta::abs(even), Cta::abs(odd));
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) amax = Cta::max(amax, cta.shuffle_xor(amax, mask));
    const E4m3 scale = nvfp4_activation_scale(amax, inverse_input_scale);
    const float multiplier = nvfp4_activation_multiplier(scale, inverse_input_scale);
    const std::int64_t slot = group.first_slot + 2 * t + b;
    unsigned char* to =
        out + ((slot / record::kTokens) * records + column / record::kColumns) * record::kTokenRecordBytes;
    const int place = static_cast<int>(slot % record::kTokens);
    const int within = column % record::kColumns;
    const int byte = (4 * place + (within % 32) / 8) * 8 + (within / 32) * 4 + (within % 8) / 2;
    const std::uint32_t codes = nvfp4_activation_code(even, multiplier).bits |
                                static_cast<std::uint32_t>(nvfp4_activation_code(odd, multiplier).bits) << 4;
    cta.store(to + byte, static_cast<unsigned char>(codes));
    if (g == 0) cta.store(to + record::kTokenPayloadBytes + 4 * place + within / 16, scale.bits);
  }
}

// ---- down and plain: rows 32*strip + 16*tile + 2g and + 1 ----

// The two rows of token 2t + b that a lane holds of a tile.
template <class Cta>
FOURFOLD_DEVICE device::F32x2 two_rows(const float (&c)[4], int b, float factor, float weight) {
  return {{Cta::mul(Cta::mul(c[b], factor), weight), Cta::mul(Cta::mul(c[2 + b], factor), weight)}};
}

template <class Cta>
FOURFOLD_DEVICE float weight_of(Cta cta, const float* slot_weight, std::int64_t slot) {
  return slot_weight ? cta.load(slot_weight + slot) : 1.0f;
}

template <class Cta>
FOURFOLD_DEVICE void store_rows_f32(Cta cta, float* out, int columns, TokenGroup group, int strip,
                                    const float (&tile0)[4], const float (&tile1)[4], float factor,
                                    const float* slot_weight) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int token = 2 * t + b;
    if (token >= group.count) continue;
    const std::int64_t slot = group.first_slot + token;
    const float weight = weight_of(cta, slot_weight, slot);
    auto* row = reinterpret_cast<device::F32x2*>(out + slot * columns + 32 * strip) + g;
    cta.store(row, two_rows<Cta>(tile0, b, factor, weight));
    cta.store(row + 8, two_rows<Cta>(tile1, b, factor, weight));
  }
}

// One tile's two rows of two tokens, stored as they are or added to what is there.
template <class Cta>
FOURFOLD_DEVICE void put_rows_f32(Cta cta, float* out, int columns, TokenGroup group, int strip, int tile,
                                  const float (&c)[4], float factor, bool adds) {
  const int lane = Cta::keep(cta.lane()), g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int token = 2 * t + b;
    if (token >= group.count) continue;
    auto* row = reinterpret_cast<device::F32x2*>(out + (group.first_slot + token) * columns + 32 * strip +
                                                 16 * tile) +
                g;
    device::F32x2 rows{{Cta::mul(c[b], factor), Cta::mul(c[2 + b], factor)}};
    if (adds) {
      const device::F32x2 before = cta.load(row);
      rows = {{Cta::add(before.v[0], rows.v[0]), Cta::add(before.v[1], rows.v[1])}};
    }
    cta.store(row, rows);
  }
}

template <class Cta>
FOURFOLD_DEVICE std::uint32_t two_rows_bf16(const float (&c)[4], int b, float factor, float weight) {
  const device::F32x2 rows = two_rows<Cta>(c, b, factor, weight);
  return Cta::pack_bf16(rows.v[0], rows.v[1]);
}

// One tile alone.
template <class Cta>
FOURFOLD_DEVICE void store_rows_bf16(Cta cta, std::uint16_t* out, int columns, TokenGroup group, int strip,
                                     int tile, const float (&c)[4], float factor, const float* slot_weight) {
  const int g = cta.lane() >> 2, t = cta.lane() & 3;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int token = 2 * t + b;
    if (token >= group.count) continue;
    const std::int64_t slot = group.first_slot + token;
    auto* row = reinterpret_cast<std::uint32_t*>(out + slot * columns + 32 * strip + 16 * tile) + g;
    cta.store(row, two_rows_bf16<Cta>(c, b, factor, weight_of(cta, slot_weight, slot)));
  }
}

template <class Cta>
FOURFOLD_DEVICE void store_rows_bf16(Cta cta, std::uint16_t* out, int columns, TokenGroup group, int strip,
                                     const float (&tile0)[4], const float (&tile1)[4], float factor,
                                     const float* slot_weight) {
  store_rows_bf16(cta, out, columns, group, strip, 0, tile0, factor, slot_weight);
  store_rows_bf16(cta, out, columns, group, strip, 1, tile1, factor, slot_weight);
}

}  // namespace fourfold::moe
