// Rows by index, where the indices are in device memory: the embedding of tokens, and rows of anything.
#pragma once

#include <bit>
#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::sampling {

// bf16 rows of the table as f32: the residual stream's first value. Eight columns a thread.
template <class Cta>
FOURFOLD_DEVICE void embed(Cta cta, const EmbedParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int per_row = (params.columns + kEmbedColumnsPerBlock - 1) / kEmbedColumnsPerBlock;
  const int row = cta.block() / per_row;
  const int column = (cta.block() - row * per_row) * kEmbedColumnsPerBlock + cta.thread() * 8;
  const int token = cta.load(params.tokens + row);
  if (token < 0 || column >= params.columns) return;
  const auto packed = cta.load_stream(reinterpret_cast<const device::U32x4*>(
      params.table + static_cast<std::int64_t>(token) * params.columns + column));
  float* const out = params.out + static_cast<std::int64_t>(row) * params.columns + column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    device::F32x4 four;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      four.v[2 * i] = std::bit_cast<float>(packed.v[2 * half + i] << 16);
      four.v[2 * i + 1] = std::bit_cast<float>(packed.v[2 * half + i] & 0xFFFF0000u);
    }
    cta.store(reinterpret_cast<device::F32x4*>(out + 4 * half), four);
  }
}

// Two times 16 bytes a thread.
template <class Cta>
FOURFOLD_DEVICE void take_rows(Cta cta, const TakeRowsParams& params) {
  cta.wait_predecessors();
  cta.release_successors();
  const int per_row = (params.row_bytes + kTakeBytesPerBlock - 1) / kTakeBytesPerBlock;
  const int row = cta.block() / per_row;
  const int begin = (cta.block() - row * per_row) * kTakeBytesPerBlock + cta.thread() * 16;
  const int index = cta.load(params.indices + row);
  if (index < 0) return;
  const auto* from =
      static_cast<const unsigned char*>(params.from) + static_cast<std::int64_t>(index) * params.row_bytes;
  auto* to = static_cast<unsigned char*>(params.out) + static_cast<std::int64_t>(row) * params.row_bytes;
  device::U32x4 bytes[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = begin + i * 16 * kCopyThreads;
    if (at < params.row_bytes) bytes[i] = cta.load(reinterpret_cast<const device::U32x4*>(from + at));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = begin + i * 16 * kCopyThreads;
    if (at < params.row_bytes) cta.store(reinterpret_cast<device::U32x4*>(to + at), bytes[i]);
  }
}

}  // namespace fourfold::sampling
