// Matrices times bf16 tokens on the tile unit: 16 rows, 16 tokens and 32 columns an instruction. FP4 and FP8
// weights times their block's scale have at most six significant bits, so they are bf16 exactly, and every
// product is exact.
//
// The unit's own order of additions is the arithmetic here (even and odd columns of each 32 in two fused
// chains, their sum added to what was there), so it serves one token as well as many: a token is one row of a
// tile, and rows know nothing of each other. Other instruction sets add in another order, so with bf16 inputs
// this one's last bits are its own.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/jobs.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/tile_memory.h"

namespace fourfold::cpu {

inline constexpr std::int64_t kTileTokens = 16;
inline constexpr std::int64_t kTilesAtATime = 4;
inline constexpr std::int64_t kTileBytes = 1024;  // 16 rows of 64 bytes

// Registers: 0 to 3 sums, 4 and 5 tokens, 6 and 7 weights. Sums and tokens have as many rows as tokens.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {};
};

// The tile intrinsics of some compilers do not say that they read and write memory. No instruction comes of
// this; stores before it and loads after it stay there.
template <class L>
void settle_memory() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

template <class L>
void configure_tiles(std::int64_t token_count) {
  TileConfig config;
  for (int i = 0; i < 6; ++i) config.rows[i] = static_cast<std::uint8_t>(token_count);
  config.rows[6] = config.rows[7] = 16;
  settle_memory<L>();
  _tile_loadconfig(&config);
}

// Two f32 that are bf16 already, side by side in each lane.
template <class L>
__m512i pair_up(__m512 even, __m512 odd) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(_mm512_castps_si512(even), 16),
                                 _mm512_castps_si512(odd));
}

// The weights of 32 columns as a tile: [column pair][row][2]. `group` counts 32s; a matrix may end in the
// middle of its last one.
template <class L>
struct Bf16Tile {
  static constexpr bool has_scales = false;
  static constexpr bool has_pairs = false;  // tiles of one row are as fast as memory
  static constexpr float unit = 1;
  static const std::uint8_t* load(const MultiplyJob& job, const std::uint8_t* panel, std::int64_t group,
                                  std::uint8_t* memory) {
    const std::uint8_t* weights = panel + group * kTileBytes;
    if (2 * group + 1 < job.block_count) return weights;  // packed as a tile
    std::memcpy(memory, weights, kTileBytes / 2);
    std::memset(memory + kTileBytes / 2, 0, kTileBytes / 2);
    return memory;
  }
  template <class Add>
  static void each_pair(const MultiplyJob&, const std::uint8_t*, std::int64_t, const Add&) {}
};

template <class L>
struct Nvfp4Tile {
  static constexpr bool has_scales = false;
  static constexpr bool has_pairs = true;
  static constexpr float unit = 0x1p8f;  // which the scales lack as they are read
  static const std::uint8_t* load(const MultiplyJob& job, const std::uint8_t* panel, std::int64_t group,
                                  std::uint8_t* memory) {
    const std::uint8_t* scales = panel + job.block_count * 128;
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t block = 2 * group + half;
      if (block < job.block_count)
        decode(panel + block * 128, L::load_e4m3(scales + block * 16), memory + half * kTileBytes / 2);
      else
        std::memset(memory + half * kTileBytes / 2, 0, kTileBytes / 2);
    }
    return memory;
  }
  static void decode(const std::uint8_t* codes, __m512 scales, std::uint8_t* to) {
    each_pair_of_block(codes, scales, [&](int pair, __m512 even, __m512 odd) {
      _mm512_store_si512(to + pair * 64, pair_up<L>(even, odd));
    });
  }
  // Calls add(pair, even columns, odd columns) for the eight pairs of a block.
  template <class Add>
  static void each_pair_of_block(const std::uint8_t* codes, __m512 scales, const Add& add) {
    const __m512 values =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    // The look-up reads the lowest four bits of a lane and no others.
    const auto value = [&](__m512i bits) {
      return _mm512_mul_ps(_mm512_permutexvar_ps(bits, values), scales);
    };
    for (int half = 0; half < 2; ++half) {
      const __m512i four = _mm512_loadu_si512(codes + 64 * half);  // [row][4]: columns j and 4 + j
      add(4 * half, value(four), value(_mm512_srli_epi32(four, 8)));
      add(4 * half + 1, value(_mm512_srli_epi32(four, 16)), value(_mm512_srli_epi32(four, 24)));
      add(4 * half + 2, value(_mm512_srli_epi32(four, 4)), value(_mm512_srli_epi32(four, 12)));
      add(4 * half + 3, value(_mm512_srli_epi32(four, 20)), value(_mm512_srli_epi32(four, 28)));
    }
  }
  template <class Add>
  static void each_pair(const MultiplyJob& job, const std::uint8_t* panel, std::int64_t group,
                        const Add& add) {
    const std::uint8_t* scales = panel + job.block_count * 128;
    for (std::int64_t half = 0; half < 2 && 2 * group + half < job.block_count; ++half) {
      const std::int64_t block = 2 * group + half;
      each_pair_of_block(panel + block * 128, L::load_e4m3(scales + block * 16),
                         [&](int pair, __m512 even, __m512 odd) { add(8 * half + pair, even, odd); });
    }
  }
};

template <class L>
struct E4m3Tile {
  static constexpr bool has_scales = true;
  static constexpr bool has_pairs = true;
  static constexpr float unit = 1;
  static const std::uint8_t* load(const MultiplyJob& job, const std::uint8_t* panel, std::int64_t group,
                                  std::uint8_t* memory) {
    const std::int64_t pairs = 2 * group + 1 < job.block_count ? 16 : 8;
    const std::uint8_t* codes = panel + group * 512;
    for (std::int64_t pair = 0; pair < pairs; ++pair)
      _mm512_store_si512(memory + pair * 64,
                         pair_up<L>(L::load_e4m3(codes + pair * 32), L::load_e4m3(codes + pair * 32 + 16)));
    if (pairs < 16) std::memset(memory + kTileBytes / 2, 0, kTileBytes / 2);
    return memory;
  }
  template <class Add>
  static void each_pair(const MultiplyJob& job, const std::uint8_t* panel, std::int64_t group,
                        const Add& add) {
    const std::int64_t pairs = 2 * group + 1 < job.block_count ? 16 : 8;
    const std::uint8_t* codes = panel + group * 512;
    for (std::int64_t pair = 0; pair < pairs; ++pair)
      add(pair, L::load_e4m3(codes + pair * 32), L::load_e4m3(codes + pair * 32 + 16));
  }
};

// A thread's copy of the tokens in the order of tiles: [tile][group of 32 columns][token][64 bytes].
template <class L>
class TokenTiles {
 public:
  const std::uint8_t* stage(const MultiplyJob& job, std::int64_t first, std::int64_t count) {
    const std::int64_t groups = (job.block_count + 1) / 2;
    grow(static_cast<std::size_t>(kTilesAtATime * groups * kTileBytes));
    for (std::int64_t t = 0; t < count; ++t) {
      const std::uint8_t* from = job.tokens[first + t];
      std::uint8_t* to = bytes_ + t / kTileTokens * groups * kTileBytes + t % kTileTokens * 64;
      for (std::int64_t group = 0; group < groups; ++group)
        _mm512_store_si512(to + group * kTileBytes, _mm512_loadu_si512(from + group * 64));
    }
    return bytes_;
  }
  // One or two tokens in f32, for multiply_few: [token][columns, padded to 32].
  const float* widen(const MultiplyJob& job) {
    const std::int64_t columns = (job.block_count + 1) / 2 * 32;
    grow(static_cast<std::size_t>(job.token_count * columns) * sizeof(float));
    auto* to = reinterpret_cast<float*>(bytes_);
    for (std::int64_t t = 0; t < job.token_count; ++t) {
      const auto* from = reinterpret_cast<const std::uint16_t*>(job.tokens[t]);
      for (std::int64_t i = 0; i < columns; i += 16) L::store(to + t * columns + i, L::load_bf16(from + i));
    }
    return to;
  }
  ~TokenTiles() { std::free(bytes_); }
  static TokenTiles& of_this_thread() {
    thread_local TokenTiles tiles;
    return tiles;
  }

 private:
  void grow(std::size_t bytes) {
    if (bytes <= size_) return;
    std::free(bytes_);
    bytes_ = nullptr;
    size_ = 0;
    bytes_ = allocate_tile_memory(bytes);
    size_ = bytes;
  }

  std::uint8_t* bytes_ = nullptr;
  std::size_t size_ = 0;
};

// Adds the columns of groups begin to end for up to four tiles of tokens; sums in registers 0 to 3.
template <class L, class Weights, int Tiles>
void add_groups(const MultiplyJob& job, const std::uint8_t* panel, const std::uint8_t* tokens,
                std::int64_t begin, std::int64_t end) {
  const std::int64_t tile_stride = (job.block_count + 1) / 2 * kTileBytes;
  // A tile is read from the cache, not from stores on their way to it: weights are decoded two tiles ahead.
  constexpr std::int64_t ahead = 2;
  alignas(64) std::uint8_t memory[ahead + 2][kTileBytes];
  const std::uint8_t* weights[ahead + 2];
  const auto prepare = [&](std::int64_t group) {
    const std::int64_t place = group % (ahead + 2);
    weights[place] = Weights::load(job, panel, group, memory[place]);
  };
  for (std::int64_t group = begin; group < begin + ahead && group < end; ++group) prepare(group);
  for (std::int64_t group = begin; group < end; ++group) {
    if (group + ahead < end) prepare(group + ahead);
    settle_memory<L>();
    _tile_loadd(6, weights[group % (ahead + 2)], 64);
    const std::uint8_t* rows = tokens + group * kTileBytes;
    _tile_loadd(4, rows, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Tiles > 1) {
      _tile_loadd(5, rows + tile_stride, 64);
      _tile_dpbf16ps(1, 5, 6);
    }
    if constexpr (Tiles > 2) {
      _tile_loadd(4, rows + 2 * tile_stride, 64);
      _tile_dpbf16ps(2, 4, 6);
    }
    if constexpr (Tiles > 3) {
      _tile_loadd(5, rows + 3 * tile_stride, 64);
      _tile_dpbf16ps(3, 5, 6);
    }
  }
}

template <class L, int Tiles>
void store_tiles(std::uint8_t* sums) {
  _tile_stored(0, sums, 64);
  if constexpr (Tiles > 1) _tile_stored(1, sums + kTileBytes, 64);
  if constexpr (Tiles > 2) _tile_stored(2, sums + 2 * kTileBytes, 64);
  if constexpr (Tiles > 3) _tile_stored(3, sums + 3 * kTileBytes, 64);
  settle_memory<L>();
}

template <class L, class Weights, int Tiles>
void multiply_tile_panel(const MultiplyJob& job, std::int64_t panel, std::int64_t first, std::int64_t count,
                         const std::uint8_t* tokens) {
  const std::uint8_t* weights = job.panels + panel * job.panel_bytes;
  const std::int64_t groups = (job.block_count + 1) / 2;
  alignas(64) std::uint8_t sums[Tiles * kTileBytes];
  const auto zero_tiles = [] {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  };
  zero_tiles();
  if constexpr (!Weights::has_scales) {
    add_groups<L, Weights, Tiles>(job, weights, tokens, 0, groups);
    store_tiles<L, Tiles>(sums);
    const __m512 scale = _mm512_set1_ps(job.scale * Weights::unit);
    for (std::int64_t t = 0; t < count; ++t)
      store_results<L>(job, panel, first + t, _mm512_mul_ps(_mm512_load_ps(sums + t * 64), scale));
    return;
  }
  __m512 total[Tiles * kTileTokens];
  for (std::int64_t t = 0; t < count; ++t) total[t] = _mm512_setzero_ps();
  const std::int64_t segment_groups = (job.segment_blocks + 1) / 2;
  const std::int64_t segments = (groups + segment_groups - 1) / segment_groups;
  for (std::int64_t segment = 0; segment < segments; ++segment) {
    const std::int64_t after = (segment + 1) * segment_groups;
    add_groups<L, Weights, Tiles>(job, weights, tokens, segment * segment_groups,
                                  after < groups ? after : groups);
    store_tiles<L, Tiles>(sums);
    zero_tiles();
    const __m512 scale = _mm512_loadu_ps(job.segment_scales + (panel * segments + segment) * 16);
    for (std::int64_t t = 0; t < count; ++t)
      total[t] = _mm512_fmadd_ps(_mm512_load_ps(sums + t * 64), scale, total[t]);
  }
  for (std::int64_t t = 0; t < count; ++t) store_results<L>(job, panel, first + t, total[t]);
}

template <class L, class Weights, int Tiles>
void multiply_tile_panels(const MultiplyJob& job, std::int64_t first, std::int64_t count) {
  const std::uint8_t* tokens = TokenTiles<L>::of_this_thread().stage(job, first, count);
  for (std::int64_t panel = job.panel_begin; panel < job.panel_end; ++panel)
    multiply_tile_panel<L, Weights, Tiles>(job, panel, first, count, tokens);
}

// One or two tokens are not worth a tile: the unit's additions one by one, lane by lane. What the unit
// flushes to zero (numbers below 2^-126) cannot come up: see kLeastTileInput.
template <class L, class Weights, int Tokens>
void multiply_few(const MultiplyJob& job, std::int64_t panel, const float* tokens) {
  const std::uint8_t* weights = job.panels + panel * job.panel_bytes;
  const std::int64_t groups = (job.block_count + 1) / 2;
  const std::int64_t segment_groups = Weights::has_scales ? (job.segment_blocks + 1) / 2 : groups;
  const std::int64_t segments = (groups + segment_groups - 1) / segment_groups;
  __m512 total[Tokens], sum[Tokens];
  for (int t = 0; t < Tokens; ++t) total[t] = sum[t] = _mm512_setzero_ps();
  for (std::int64_t group = 0; group < groups; ++group) {
    __m512 even_sum[Tokens], odd_sum[Tokens];
    for (int t = 0; t < Tokens; ++t) even_sum[t] = odd_sum[t] = _mm512_setzero_ps();
    Weights::each_pair(job, weights, group, [&](std::int64_t pair, __m512 even, __m512 odd) {
      for (int t = 0; t < Tokens; ++t) {
        const float* x = tokens + (t * groups + group) * 32 + 2 * pair;
        even_sum[t] = _mm512_fmadd_ps(even, _mm512_set1_ps(x[0]), even_sum[t]);
        odd_sum[t] = _mm512_fmadd_ps(odd, _mm512_set1_ps(x[1]), odd_sum[t]);
      }
    });
    for (int t = 0; t < Tokens; ++t) sum[t] = _mm512_add_ps(sum[t], _mm512_add_ps(even_sum[t], odd_sum[t]));
    if (!Weights::has_scales || ((group + 1) % segment_groups != 0 && group + 1 < groups)) continue;
    const __m512 scale =
        _mm512_loadu_ps(job.segment_scales + (panel * segments + group / segment_groups) * 16);
    for (int t = 0; t < Tokens; ++t) {
      total[t] = _mm512_fmadd_ps(sum[t], scale, total[t]);
      sum[t] = _mm512_setzero_ps();
    }
  }
  for (int t = 0; t < Tokens; ++t)
    store_results<L>(
        job, panel, t,
        Weights::has_scales ? total[t] : _mm512_mul_ps(sum[t], _mm512_set1_ps(job.scale * Weights::unit)));
}

// Whole tiles of tokens, four, two or one at a time, and then what is left in a tile of fewer rows.
template <class L, class Weights>
void multiply_tiles(const MultiplyJob& job) {
  if (job.token_count == 0) return;
  if (Weights::has_pairs && job.token_count <= 2) {
    const float* tokens = TokenTiles<L>::of_this_thread().widen(job);
    for (std::int64_t panel = job.panel_begin; panel < job.panel_end; ++panel)
      if (job.token_count == 1)
        multiply_few<L, Weights, 1>(job, panel, tokens);
      else
        multiply_few<L, Weights, 2>(job, panel, tokens);
    return;
  }
  const std::int64_t whole = job.token_count / kTileTokens * kTileTokens;
  std::int64_t first = 0;
  if (whole > 0) configure_tiles<L>(kTileTokens);
  for (; whole - first >= 64; first += 64) multiply_tile_panels<L, Weights, 4>(job, first, 64);
  if (whole - first >= 32) multiply_tile_panels<L, Weights, 2>(job, first, 32), first += 32;
  if (whole - first >= 16) multiply_tile_panels<L, Weights, 1>(job, first, 16), first += 16;
  if (first < job.token_count) {
    configure_tiles<L>(job.token_count - first);
    multiply_tile_panels<L, Weights, 1>(job, first, job.token_count - first);
  }
  _tile_release();
}

}  // namespace fourfold::cpu
