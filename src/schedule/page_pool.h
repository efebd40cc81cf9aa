// Pages as numbers: who holds how many of them. A page has as many holders as were given it; it is free again
// when the last one lets go. Those that the prefix index alone holds are counted as idle.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fourfold::schedule {

class PagePool {
 public:
  explicit PagePool(std::int64_t page_count);

  std::int64_t page_count() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t free_count() const { return static_cast<std::int64_t>(free_.size()); }
  std::int32_t holders(std::int32_t page) const { return holders_[static_cast<std::size_t>(page)]; }

  // A free page with one holder, the caller.
  std::optional<std::int32_t> acquire();
  void share(std::int32_t page);    // one more holder
  void release(std::int32_t page);  // one fewer
  // Whether the prefix index is one of its holders.
  void set_indexed(std::int32_t page, bool indexed);
  std::int64_t idle_count() const { return idle_count_; }

 private:
  bool is_idle(std::int32_t page) const {
    return indexed_[static_cast<std::size_t>(page)] && holders(page) == 1;
  }

  std::vector<std::int32_t> holders_;  // by page
  std::vector<bool> indexed_;          // by page
  std::int64_t idle_count_ = 0;
  std::vector<std::int32_t> free_;  // the last one is next
};

}  // namespace fourfold::schedule
