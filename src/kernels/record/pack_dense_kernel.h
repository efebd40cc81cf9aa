// Packing dense matrices on the GPU: a warp makes one record at a time; a row's 64 columns are read as whole
// sectors and written as whole lines, so it runs at the speed of memory. The same lane arithmetic as on the
// host.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/record/pack_dense.h"

namespace fourfold::record {

// Eight columns of a row as bf16; zeros for padding.
template <DenseSource Source, class Cta>
FOURFOLD_DEVICE device::U32x4 dense_bf16(Cta cta, const DenseJob& job, const unsigned char* row,
                                         std::int64_t column) {
  if (row == nullptr || column >= job.columns) return {{0, 0, 0, 0}};
  if constexpr (Source == DenseSource::bf16)
    return cta.load(reinterpret_cast<const device::U32x4*>(row + 2 * column));
  const auto* from = reinterpret_cast<const device::F32x4*>(row + 4 * column);
  const device::F32x4 low = cta.load(from), high = cta.load(from + 1);
  return {{Cta::pack_bf16(low.v[0], low.v[1]), Cta::pack_bf16(low.v[2], low.v[3]),
           Cta::pack_bf16(high.v[0], high.v[1]), Cta::pack_bf16(high.v[2], high.v[3])}};
}
template <class Cta>
FOURFOLD_DEVICE device::U32x2 dense_fp8(Cta cta, const DenseJob& job, const unsigned char* row,
                                        std::int64_t column) {
  if (row == nullptr || column >= job.columns) return {{0, 0}};
  return cta.load(reinterpret_cast<const device::U32x2*>(row + column));
}

// One 32-column half of a tile of a record.
template <DenseSource Source, class Cta>
FOURFOLD_DEVICE void pack_dense_half(Cta cta, const DenseJob& job, std::int64_t strip, std::int64_t record,
                                     int tile, int half, std::uint8_t* out) {
  const int lane = cta.lane(), g = lane >> 2, t = lane & 3;
  const unsigned char* low = dense_row(job, strip, tile, g);
  const unsigned char* high = dense_row(job, strip, tile, g + 8);
  const std::int64_t column = kColumns * record + 32 * half + 8 * t;
  if constexpr (Source == DenseSource::e4m3) {
    cta.store(reinterpret_cast<device::U32x4*>(out + fp8_offset(tile, half, lane)),
              fp8_half(dense_fp8(cta, job, low, column), dense_fp8(cta, job, high, column)));
  } else {
    const device::U32x4 row_g = dense_bf16<Source>(cta, job, low, column);
    const device::U32x4 row_g8 = dense_bf16<Source>(cta, job, high, column);
#pragma unroll
    for (int step = 0; step < 2; ++step)
      cta.store(reinterpret_cast<device::U32x4*>(out + bf16_offset(tile, half, step, lane)),
                bf16_step(row_g, row_g8, step));
  }
}

template <DenseSource Source, class Cta>
FOURFOLD_DEVICE void pack_dense_from(Cta cta, const DenseJob& job) {
  const std::int64_t records = dense_records(job), total = dense_strips(job) * records;
  const std::int64_t warps = static_cast<std::int64_t>(cta.blocks()) * (cta.threads() / 32);
  for (std::int64_t at = static_cast<std::int64_t>(cta.block()) * (cta.threads() / 32) + cta.warp();
       at < total; at += warps) {
    const std::int64_t strip = at / records, record = at - strip * records;
    std::uint8_t* out = job.records + at * dense_record_bytes(Source);
#pragma unroll
    for (int part = 0; part < 4; ++part)
      pack_dense_half<Source>(cta, job, strip, record, part / 2, part % 2, out);
  }
}

template <class Cta>
FOURFOLD_DEVICE void pack_dense_kernel(Cta cta, const DenseJob& job) {
  cta.wait_predecessors();
  cta.release_successors();
  switch (job.source) {
    case DenseSource::bf16: return pack_dense_from<DenseSource::bf16>(cta, job);
    case DenseSource::f32: return pack_dense_from<DenseSource::f32>(cta, job);
    case DenseSource::e4m3: return pack_dense_from<DenseSource::e4m3>(cta, job);
  }
}

}  // namespace fourfold::record
