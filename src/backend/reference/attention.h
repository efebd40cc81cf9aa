// The meaning of the paged KV cache and of attention over it.
#pragma once

#include <cstdint>
#include <span>

#include "backend/batch.h"
#include "backend/program.h"
#include "backend/reference/rows.h"

namespace fourfold::backend::reference {

// One layer's pages. Unwritten positions hold NaN, so that reading one shows.
struct KvPages {
  KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens);
  Rows keys;    // [page_count * page_tokens, kv_heads * head_dim]
  Rows values;  // likewise; none in a latent cache
};

// A sequence's way from positions to rows of KvPages.
struct PageTable {
  std::span<const std::int32_t> pages;
  std::int64_t page_tokens = 0;
  std::int64_t row_of(std::int64_t position) const {
    return pages[position / page_tokens] * page_tokens + position % page_tokens;
  }
};

void write_kv(const KvCache& cache, const PageTable& table, std::int64_t position, std::span<const float> key,
              std::span<const float> value, KvPages& pages);

// One row: over the positions it sees in this order, whatever the pages are. Empty sinks are none.
void attend(const Attention& op, const KvCache& cache, const PageTable& table, const KvPages& pages,
            std::int64_t position, std::span<const float> query, std::span<float> out,
            std::span<const float> sinks = {});

}  // namespace fourfold::backend::reference
