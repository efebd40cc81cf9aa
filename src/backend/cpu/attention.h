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
  std::span<const std::int32_t> window_pages = {};  // of caches that have a window
};

class KvPages {
 public:
  // A cache with a window has one page more, of zeros: what lies before a run's window is read and weighs
  // nothing, and pages that were given back are named by its number.
  KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens);

  // One row's keys and values; in a latent cache a head's key is its value and then its key.
  void write(const RowPlace& place, const float* key, const float* value);
  // Attends with op.head_count heads of one row each. Empty sinks are none.
  void attend(Machine& machine, std::span<const RowPlace> places, const Attention& op,
              std::span<const float> sinks, const float* queries, float* out);

  // A page's keys and values, as they lie here, kept apart and brought back.
  std::int64_t page_floats() const { return (key_page_bytes_ + value_page_bytes_) / 4; }
  void save_page(std::int32_t page, float* to) const;
  void restore_page(const float* from, std::int32_t page);

 private:
  friend class AttendCall;
  std::span<const std::int32_t> pages_of(const RowPlace& place) const {
    return has_window_ ? place.window_pages : place.pages;
  }

  std::int64_t kv_head_count_, head_dim_, padded_dim_, value_dim_, padded_value_dim_, page_tokens_;
  bool is_latent_;  // without values_
  bool has_window_;
  std::int64_t key_page_bytes_ = 0, value_page_bytes_ = 0;
  KvFormat format_;
  std::vector<std::int64_t> key_rows_;  // kv_panels.h, by dimension
  kernel::AlignedBytes keys_, values_;
  Scratch<float> partial_;
};

}  // namespace fourfold::backend::cpu
