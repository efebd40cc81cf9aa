// Matrix times tokens. A tile is one panel of 16 rows and a few tokens: each weight is decoded once and used
// for every token of the tile. For one row and one token the operations and their order never change with the
// size of the tile, so a token's results do not depend on its neighbours.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/input_rows.h"
#include "kernels/cpu/jobs.h"
#include "kernels/cpu/tile.h"

namespace fourfold::cpu {

// Where a panel's sixteen results go; the last panel's may be fewer.
template <class L>
void store_results(const MultiplyJob& job, std::int64_t panel, std::int64_t token, typename L::F results) {
  float* out = job.out + token * job.out_stride + panel * 16;
  const std::int64_t count = job.rows - panel * 16;
  if (count >= 16) return L::store(out, results);
  float all[16];
  L::store(all, results);
  std::memcpy(out, all, static_cast<std::size_t>(count) * sizeof(float));
}

// FP4: an exact integer dot product a block, then one fused multiplication and addition.
template <class L, int Planes>
typename L::F add_block(const typename L::Codes& codes, typename L::F scales, const std::uint8_t* block,
                        typename L::F sum) {
  using I = typename L::I;
  const auto* planes = reinterpret_cast<const std::int8_t*>(block);
  BlockTail tail;
  std::memcpy(&tail, block + 16 * Planes, sizeof tail);
  const I none = L::broadcast_int(0);
  const I start = L::code_bias == 0 ? none : L::broadcast_int(tail.minus_sum);
  const auto factor = L::mul(scales, L::broadcast(tail.scale));
  if constexpr (Planes == 1) return L::fma(L::to_float(L::dot(codes, planes, start)), factor, sum);
  const I upper = L::shift_up_8_and_add(L::dot(codes, planes, none), L::dot(codes, planes + 16, start));
  if constexpr (Planes == 2) return L::fma(L::to_float(upper), factor, sum);
  // 31 bits do not fit an f32: the upper two planes and the lowest are added one after the other.
  const I low_start = L::code_bias == 0 ? none : L::broadcast_int(tail.minus_low);
  sum = L::fma(L::to_float(upper), L::mul(factor, L::broadcast(256.0f)), sum);
  return L::fma(L::to_float(L::dot(codes, planes + 2 * 16, low_start)), factor, sum);
}

template <class L, int Planes, int Tokens>
void multiply_code_tile(const MultiplyJob& job, std::int64_t panel, std::int64_t first_token) {
  const std::uint8_t* codes = job.panels + panel * job.panel_bytes;
  const std::uint8_t* scales = codes + job.block_count * 128;
  const std::uint8_t* const* tokens = job.tokens + first_token;
  typename L::F sum[Tokens];
  for (int t = 0; t < Tokens; ++t) sum[t] = L::zero();
  for (std::int64_t block = 0; block < job.block_count; ++block) {
    const typename L::Codes weights = L::decode(codes + block * 128);
    const typename L::F scale = L::load_e4m3(scales + block * 16);
    for (int t = 0; t < Tokens; ++t)
      sum[t] = add_block<L, Planes>(weights, scale, tokens[t] + block * block_bytes(Planes), sum[t]);
  }
  for (int t = 0; t < Tokens; ++t)
    store_results<L>(job, panel, first_token + t, L::mul(sum[t], L::broadcast(job.scale)));
}

// Two columns of weights as f32.
template <class L>
struct Bf16Columns {
  static constexpr std::int64_t pair_bytes = 64;
  static constexpr bool has_scales = false;
  static void load(const std::uint8_t* at, typename L::F& even, typename L::F& odd) {
    L::load_bf16_pairs(at, even, odd);
  }
};
template <class L>
struct E4m3Columns {
  static constexpr std::int64_t pair_bytes = 32;
  static constexpr bool has_scales = true;
  static void load(const std::uint8_t* at, typename L::F& even, typename L::F& odd) {
    even = L::load_e4m3(at);
    odd = L::load_e4m3(at + 16);
  }
};
template <class L>
struct F32Columns {
  static constexpr std::int64_t pair_bytes = 128;
  static constexpr bool has_scales = false;
  static void load(const std::uint8_t* at, typename L::F& even, typename L::F& odd) {
    even = L::load(reinterpret_cast<const float*>(at));
    odd = L::load(reinterpret_cast<const float*>(at + 64));
  }
};

// Even and odd columns are summed apart (two chains of additions keep the machine busy) and added at the end
// of a segment.
template <class L, class Columns, int Tokens>
void multiply_float_tile(const MultiplyJob& job, std::int64_t panel, std::int64_t first_token) {
  using F = typename L::F;
  const std::uint8_t* weights = job.panels + panel * job.panel_bytes;
  const auto* const* tokens = reinterpret_cast<const float* const*>(job.tokens + first_token);
  const std::int64_t segment_blocks = Columns::has_scales ? job.segment_blocks : job.block_count;
  const std::int64_t segments = (job.block_count + segment_blocks - 1) / segment_blocks;
  F total[Tokens];
  for (int t = 0; t < Tokens; ++t) total[t] = L::zero();
  for (std::int64_t segment = 0; segment < segments; ++segment) {
    const std::int64_t begin = segment * segment_blocks * 8;
    const std::int64_t after = begin + segment_blocks * 8;
    const std::int64_t end = after < job.block_count * 8 ? after : job.block_count * 8;
    F even_sum[Tokens], odd_sum[Tokens];
    for (int t = 0; t < Tokens; ++t) even_sum[t] = odd_sum[t] = L::zero();
    for (std::int64_t pair = begin; pair < end; ++pair) {
      F even, odd;
      Columns::load(weights + pair * Columns::pair_bytes, even, odd);
      for (int t = 0; t < Tokens; ++t) {
        even_sum[t] = L::fma(even, L::broadcast(tokens[t][2 * pair]), even_sum[t]);
        odd_sum[t] = L::fma(odd, L::broadcast(tokens[t][2 * pair + 1]), odd_sum[t]);
      }
    }
    for (int t = 0; t < Tokens; ++t) {
      const F sum = L::add(even_sum[t], odd_sum[t]);
      if constexpr (Columns::has_scales)
        total[t] = L::fma(sum, L::load(job.segment_scales + (panel * segments + segment) * 16), total[t]);
      else
        total[t] = sum;
    }
  }
  for (int t = 0; t < Tokens; ++t) store_results<L>(job, panel, first_token + t, total[t]);
}

template <class L, int Planes>
struct CodeTile {
  const MultiplyJob& job;
  std::int64_t panel;
  template <int Tokens>
  void run(std::int64_t first) const {
    multiply_code_tile<L, Planes, Tokens>(job, panel, first);
  }
};
template <class L, class Columns>
struct FloatTile {
  const MultiplyJob& job;
  std::int64_t panel;
  template <int Tokens>
  void run(std::int64_t first) const {
    multiply_float_tile<L, Columns, Tokens>(job, panel, first);
  }
};

// Tokens in runs that stay in the second cache while the panels pass by.
inline constexpr std::int64_t kTokenRun = 64;

template <class L, class Tile, int Tokens>
void multiply_panels(const MultiplyJob& job) {
  for (std::int64_t begin = 0; begin < job.token_count; begin += kTokenRun) {
    const std::int64_t end = begin + kTokenRun < job.token_count ? begin + kTokenRun : job.token_count;
    for (std::int64_t panel = job.panel_begin; panel < job.panel_end; ++panel)
      for_tiles<Tokens>(begin, end, Tile{job, panel});
  }
}

template <class L, int Planes>
void multiply_codes(const MultiplyJob& job) {
  multiply_panels<L, CodeTile<L, Planes>, L::code_tile>(job);
}
template <class L, class Columns>
void multiply_floats(const MultiplyJob& job) {
  multiply_panels<L, FloatTile<L, Columns>, L::float_tile>(job);
}

}  // namespace fourfold::cpu
