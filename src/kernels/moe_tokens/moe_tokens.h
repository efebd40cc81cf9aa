// Tokens in the form a GEMM reads: bf16 rows in staged column order for the tiled 16-bit kernels, or NVFP4
// token records for W4A4. The streaming 16-bit kernel reads plain rows and needs neither.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "base/nvfp4.h"
#include "kernels/device/types.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_tokens/token_params.h"
#include "kernels/record/record.h"

namespace fourfold::moe_tokens {

// The share of block `block` of `blocks`. A thread turns 32 columns: four chunks of four pairs become their
// transpose (pair 4t + j goes to 4j + t).
template <class Cta>
FOURFOLD_DEVICE void stage_share(Cta cta, const StageParams& params, int block, int blocks) {
  const std::int64_t step = static_cast<std::int64_t>(blocks) * cta.threads();
  for (std::int64_t i = static_cast<std::int64_t>(block) * cta.threads() + cta.thread(); i < params.groups;
       i += step) {
    device::U32x4 in[4];
#pragma unroll
    for (int t = 0; t < 4; ++t)
      in[t] = cta.load(reinterpret_cast<const device::U32x4*>(params.tokens + 32 * i) + t);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const device::U32x4 out{{in[0].v[j], in[1].v[j], in[2].v[j], in[3].v[j]}};
      cta.store(reinterpret_cast<device::U32x4*>(params.staged + 32 * i) + j, out);
    }
  }
}

template <class Cta>
FOURFOLD_DEVICE void stage_tokens(Cta cta, const StageParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  stage_share(cta, params, cta.block(), cta.blocks());
}

// One lane's eight codes of one half: token g, columns 8t.. of the half. Also the block's scale.
template <class Cta>
FOURFOLD_DEVICE std::uint32_t quantize_half(Cta cta, const device::U32x4& pairs, bool valid,
                                            float inverse_scale, E4m3& scale) {
  float value[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value[2 * i] = valid ? std::bit_cast<float>(pairs.v[i] << 16) : 0.0f;
    value[2 * i + 1] = valid ? std::bit_cast<float>(pairs.v[i] & 0xFFFF0000u) : 0.0f;
  }
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = Cta::max(amax, Cta::abs(value[i]));
  amax = Cta::max(amax, cta.shuffle_xor(amax, 1));  // lanes t and t ^ 1 share a 16-block
  scale = nvfp4_activation_scale(amax, inverse_scale);
  const float multiplier = nvfp4_activation_multiplier(scale, inverse_scale);
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    codes |= static_cast<std::uint32_t>(nvfp4_activation_code(value[i], multiplier).bits) << (4 * i);
  return codes;
}

// A warp makes one token record: eight slots of an expert, 64 columns. Blocks take token tiles round robin.
template <class Cta>
FOURFOLD_DEVICE void quantize_record(Cta cta, const QuantizeParams& params, const moe::TokenTile& tile,
                                     float inverse, int group, int record) {
  const int lane = cta.lane(), g = lane >> 2, t = lane & 3;
  const int place = 8 * group + g;
  const bool valid = place < tile.count;
  const int token = cta.load(params.slot_token + tile.first_slot + (valid ? place : tile.count - 1));
  const std::uint16_t* from =
      params.tokens + (static_cast<std::int64_t>(token) * params.column_records + record) * record::kColumns +
      8 * t;
  E4m3 scale[2];
  device::U32x2 codes;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    codes.v[half] = quantize_half(cta, cta.load(reinterpret_cast<const device::U32x4*>(from + 32 * half)),
                                  valid, inverse, scale[half]);
  const std::int64_t index =
      (tile.first_slot / record::kTokens + group) * static_cast<std::int64_t>(params.column_records) + record;
  unsigned char* to = params.records + index * record::kTokenRecordBytes;
  cta.store(reinterpret_cast<device::U32x2*>(to) + lane, codes);
  // Blocks 0 and 2 lie with lanes t = 0, 1; blocks 1 and 3 with t = 2, 3.
  const std::uint32_t own = scale[0].bits | static_cast<std::uint32_t>(scale[1].bits) << 16;
  const std::uint32_t other = cta.shuffle_xor(own, 2);
  if (t == 0)
    cta.store(reinterpret_cast<std::uint32_t*>(to + record::kTokenPayloadBytes) + g, own | other << 8);
}

template <class Cta>
FOURFOLD_DEVICE void quantize_tokens(Cta cta, const QuantizeParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int tiles = cta.load(params.tile_count);
  for (int index = cta.block(); index < tiles; index += cta.blocks()) {
    const moe::TokenTile tile = cta.load(params.tiles + index);
    const float inverse = cta.load(params.inverse_input_scale + tile.expert);
    const int units = (tile.count + record::kTokens - 1) / record::kTokens * params.column_records;
    for (int unit = cta.warp(); unit < units; unit += cta.threads() / 32)
      quantize_record(cta, params, tile, inverse, unit / params.column_records, unit % params.column_records);
  }
}

}  // namespace fourfold::moe_tokens
