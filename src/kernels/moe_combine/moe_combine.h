// The layer's last step: a token's result is the sum of its experts' rows, in the order of their rank. One
// fixed order, so the sum has the same bits whatever batch the token sits in.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/macros.h"
#include "kernels/device/functions.h"
#include "kernels/device/types.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_combine/combine_params.h"

namespace fourfold::moe_combine {

static_assert(moe::kMaxTopK <= 32, "a lane has a rank");

template <class Element, class Cta>
FOURFOLD_DEVICE void load_eight(Cta cta, const void* rows, std::int64_t at, float (&values)[8]) {
  if constexpr (std::is_same_v<Element, float>) {
    const float* from = static_cast<const float*>(rows) + at;
    const auto low = cta.load(reinterpret_cast<const device::F32x4*>(from));
    const auto high = cta.load(reinterpret_cast<const device::F32x4*>(from + 4));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = low.v[i];
      values[4 + i] = high.v[i];
    }
  } else {
    const auto packed =
        cta.load(reinterpret_cast<const device::U32x4*>(static_cast<const std::uint16_t*>(rows) + at));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = std::bit_cast<float>(packed.v[i] << 16);
      values[2 * i + 1] = std::bit_cast<float>(packed.v[i] & 0xFFFF0000u);
    }
  }
}

template <class Cta>
FOURFOLD_DEVICE void join(Cta cta, const JoinedRows& joined, std::int64_t token, std::int64_t at,
                          float (&x)[8]) {
  if (joined.rows == nullptr) return;
  float y[8], factor = 1.0f;
  load_eight<std::uint16_t>(cta, joined.rows, at, y);
  if (joined.gate != nullptr)
    factor = device::sigmoid<Cta>(cta.load(joined.gate + token * joined.gate_stride));
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = Cta::add(x[i], Cta::mul(factor, y[i]));
}

// The slots are older than the predecessor, GEMM2: it waited for GEMM1, and GEMM1 for them. A lane asks for
// one.
template <class Cta>
FOURFOLD_DEVICE std::int32_t slot_of_lane(Cta cta, const CombineParams& params, int token) {
  const std::int32_t* slots = params.pair_slot + static_cast<std::int64_t>(token) * params.top_k;
  return cta.lane() < params.top_k ? cta.load(slots + cta.lane()) : 0;
}

// Eight columns of a token's experts, added in the order of their rank. All lanes of a warp: those without
// columns only hand slots on. Element: float or std::uint16_t (bf16).
template <class Element, class Cta>
FOURFOLD_DEVICE void sum_ranks(Cta cta, const CombineParams& params, std::int32_t lane_slot, int column,
                               float (&sum)[8]) {
  const bool has_columns = column < params.columns;
  // Four ranks at a time are in flight; they are added one after the other.
  for (int first = 0; first < params.top_k; first += 4) {
    float part[4][8];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t slot = cta.shuffle(lane_slot, first + r);
      if (first + r < params.top_k && has_columns)
        load_eight<Element>(cta, params.rows, slot * params.columns + column, part[r]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (first + r < params.top_k && has_columns)
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] = first + r == 0 ? part[r][i] : Cta::add(sum[i], part[r][i]);
  }
}

template <class Element, class Cta>
FOURFOLD_DEVICE void combine(Cta cta, const CombineParams& params) {
  const int per_token = blocks_per_token(params.columns);
  const int token = cta.block() / per_token;
  const int column = (cta.block() - token * per_token) * kColumnsPerBlock + cta.thread() * kColumnsPerThread;
  const std::int32_t lane_slot = slot_of_lane(cta, params, token);
  cta.wait_predecessors();
  cta.release_successors();
  float sum[8];
  sum_ranks<Element>(cta, params, lane_slot, column, sum);
  if (column >= params.columns) return;
  const std::int64_t at = static_cast<std::int64_t>(token) * params.columns + column;
  if (params.residual != nullptr) {
    float x[8];
    load_eight<float>(cta, params.residual, at, x);
    if constexpr (!std::is_same_v<Element, float>) join(cta, params.joined, token, at, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = Cta::add(x[i], sum[i]);
    auto* to = reinterpret_cast<device::F32x4*>(params.residual + at);
    cta.store(to, device::F32x4{{x[0], x[1], x[2], x[3]}});
    cta.store(to + 1, device::F32x4{{x[4], x[5], x[6], x[7]}});
    return;
  }
  const device::U32x4 packed{{Cta::pack_bf16(sum[0], sum[1]), Cta::pack_bf16(sum[2], sum[3]),
                              Cta::pack_bf16(sum[4], sum[5]), Cta::pack_bf16(sum[6], sum[7])}};
  cta.store(reinterpret_cast<device::U32x4*>(params.out + at), packed);
}

}  // namespace fourfold::moe_combine
