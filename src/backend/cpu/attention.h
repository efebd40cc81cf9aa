// The paged KV cache and attention over it. A row's positions are taken in runs of 256 from position 0, the
// runs of each 1,024 are put together in order, and these in order again; runs that lie before a row's window
// would add nothing, and are left out. Rows are taken in blocks, and
// blocks by several threads: neither can be seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/machine.h"
#include "backend/program.h"
#include "kernels/cpu/kv_panels.h"

namespace fourfold::backend::cpu {

inline constexpr std::int64_t kHeadDimMax = 2048;

// Where one row of the batch belongs.
struct RowPlace {
  std::int64_t position = 0;
  std::int32_t slot = 0;
  std::span<const std::int32_t> pages;
};

class KvPages {
 public:
  KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens);

  // One row's keys and values; in a latent cache a head's key is its value and then its key.
  void write(const RowPlace& place, const float* key, const float* value);
  // Attends with op.head_count heads of one row each. Empty sinks are none.
  void attend(Machine& machine, std::span<const RowPlace> places, const Attention& op,
              std::span<const float> sinks, const float* queries, float* out);

 private:
  friend class AttendCall;

  std::int64_t kv_head_count_, head_dim_, padded_dim_, value_dim_, padded_value_dim_, page_tokens_;
  bool is_latent_;  // without values_
  KvFormat format_;
  std::vector<std::int64_t> key_rows_;  // kv_panels.h, by dimension
  kernel::AlignedBytes keys_, values_;
  Scratch<float> partial_;
};

}  // namespace fourfold::backend::cpu
