// Packing on the GPU: a warp makes one record at a time; reads and writes are whole sectors, so it runs at
// the speed of memory. The same lane arithmetic as on the host.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/record/pack.h"

namespace fourfold::record {

template <class Format, class Cta>
FOURFOLD_DEVICE void pack_kernel(Cta cta, const PackJob& job) {
  cta.wait_predecessors();
  cta.release_successors();
  const std::int64_t records = job.columns / kColumns;
  const std::int64_t total = job.rows / kRows * records;
  const int lane = cta.lane();
  const std::int64_t warps = static_cast<std::int64_t>(cta.blocks()) * (cta.threads() / 32);
  for (std::int64_t at = static_cast<std::int64_t>(cta.block()) * (cta.threads() / 32) + cta.warp();
       at < total; at += warps) {
    const std::int64_t strip = at / records, record = at - strip * records;
    std::uint8_t* out = job.records + at * kRecordBytes<Format>;
    const auto row = [&](int tile, int slot) -> std::int64_t {
      return row_of_slot(job.row_order, job.bit_order, static_cast<int>(strip), tile, slot);
    };
    const auto scales_at = [&](int tile, int slot) {
      return source_of(job, slot).scales + matrix_scale_offset<Format>(job, row(tile, slot), record);
    };
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      device::U32x4 registers;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int slot = g + 8 * upper;
        std::uint32_t scales = 0;
        if constexpr (Format::scale_word_bytes == 4)
          scales = cta.load(reinterpret_cast<const std::uint32_t*>(scales_at(tile, slot)));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t word = cta.load(reinterpret_cast<const std::uint32_t*>(
              source_of(job, slot).codes + code_offset(job, row(tile, slot), record, half, t)));
          if (job.bit_order == BitOrder::half)
            word = zeroes<Format>(scales, half, t) ? 0u : to_half_order(word);
          registers.v[2 * half + upper] = word;
        }
      }
      cta.store(reinterpret_cast<device::U32x4*>(out + payload_offset(tile, lane)), registers);
    }
    // Lane l writes scale word l: slot l/4 (+ 8 if odd) of tile (l/2) % 2.
    const std::uint8_t* from = scales_at((lane >> 1) & 1, g + 8 * (lane & 1));
    if constexpr (Format::scale_word_bytes == 4)
      cta.store(reinterpret_cast<std::uint32_t*>(out + kPayloadBytes) + lane,
                packed_scales(job.bit_order, cta.load(reinterpret_cast<const std::uint32_t*>(from))));
    else
      cta.store(reinterpret_cast<std::uint16_t*>(out + kPayloadBytes) + lane,
                cta.load(reinterpret_cast<const std::uint16_t*>(from)));
  }
}

}  // namespace fourfold::record
