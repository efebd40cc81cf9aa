#include "schedule/page_pool.h"

#include "base/check.h"

namespace fourfold::schedule {

PagePool::PagePool(std::int64_t page_count)
    : holders_(static_cast<std::size_t>(page_count)), indexed_(holders_.size()) {
  for (std::int64_t page = page_count; page > 0; --page) free_.push_back(static_cast<std::int32_t>(page - 1));
}

std::optional<std::int32_t> PagePool::acquire() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t page = free_.back();
  free_.pop_back();
  holders_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PagePool::share(std::int32_t page) {
  check(holders(page) > 0, "only a page in use can be shared", page);
  idle_count_ -= is_idle(page) ? 1 : 0;
  ++holders_[static_cast<std::size_t>(page)];
}

void PagePool::release(std::int32_t page) {
  check(holders(page) > 0, "only a page in use can be let go", page);
  check(!is_idle(page), "the index says so before it lets go", page);
  if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  idle_count_ += is_idle(page) ? 1 : 0;
}

void PagePool::set_indexed(std::int32_t page, bool indexed) {
  idle_count_ -= is_idle(page) ? 1 : 0;
  indexed_[static_cast<std::size_t>(page)] = indexed;
  idle_count_ += is_idle(page) ? 1 : 0;
}

}  // namespace fourfold::schedule
