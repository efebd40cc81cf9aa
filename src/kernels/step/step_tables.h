// A step's ragged batch as kernels read it in device memory: backend/batch.h in 32-bit words. The tables of a
// captured graph have room for its bucket; places beyond the batch say so, and kernels skip them.
#pragma once

#include <cstdint>

#include "base/token_grain.h"

namespace fourfold::step {

// Positions of a KV page, of an anchored DeltaNet block, and the grain at which prompts are cut.
inline constexpr int kPageTokens = kTokenGrain;

struct alignas(16) RowPlace {
  std::int32_t sequence;  // index into the sequences; -1: no row here
  std::int32_t position;
  std::int32_t state_slot;
  std::int32_t page_begin;  // position t lies in page pages[page_begin + t / kPageTokens]
};

struct alignas(16) SequencePlace {
  std::int32_t first_row;
  std::int32_t row_count;  // 0: no sequence here
  std::int32_t position;   // of its first row
  std::int32_t state_slot;
  std::int32_t page_begin;
  std::int32_t reserved[3];
};

struct Tables {
  const RowPlace* rows;            // [row_limit]
  const SequencePlace* sequences;  // [sequence_limit]
  const std::int32_t* pages;
  std::int32_t row_limit;
  std::int32_t sequence_limit;
};

}  // namespace fourfold::step
