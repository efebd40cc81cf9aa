// Pages of the layers that see a window alone (KvCache::window). They belong to state slots, as recurrent
// states do, and not to the batch's page table: behind each pass a slot gives back what no row of it can see
// any more, and another slot takes it. A slot goes on at a kept state (Prepared::save_anchor) with copies of
// the pages that its rows see. Every backend has one of these, and the same batches give the same pages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/batch.h"

namespace fourfold::backend {

class WindowPages {
 public:
  // As many as any batches within the capacity need; 0 where no cache has a window.
  static std::int64_t count_of(const Program& program, const Capacity& capacity);

  WindowPages(const Program& program, const Capacity& capacity);
  std::int64_t page_count() const { return page_count_; }
  // What table() says of pages that were given back: one beyond the last.
  std::int32_t behind() const { return static_cast<std::int32_t>(page_count_); }

  // For a main pass that is sound, before its slots begin.
  void begin(const Batch& batch, std::span<const SlotPast> slots);
  // Of the batch that began last: a page for each entry of Batch::pages.
  std::span<const std::int32_t> table() const { return table_; }

  // The pages that a row at `position`, and those behind it, see of what came before.
  std::span<const std::int32_t> seen(std::int32_t slot, std::int64_t position) const;
  // At most so many, where positions are multiples of kAnchorTokens.
  static std::int64_t seen_count(const Program& program, std::int64_t page_tokens);
  // The slot holds pages for what rows from `position` on see, up to `end`, and no others.
  void hold(std::int32_t slot, std::int64_t position, std::int64_t end);

  // What is wrong with the books, for tests: nothing.
  std::string problem() const;

 private:
  struct Held {  // pages `first`, `first` + 1, ... of a sequence
    std::int64_t first = 0;
    std::vector<std::int32_t> pages;
  };
  std::int64_t first_seen_page(std::int64_t position) const;
  void give_back(Held& held, std::int64_t count);  // the first ones
  void extend(Held& held, std::int64_t end);

  std::int64_t window_ = 0, page_tokens_ = 0, page_count_ = 0;
  std::vector<Held> held_;          // by slot
  std::vector<std::int32_t> free_;  // the last one is next
  std::vector<std::int32_t> table_;
};

}  // namespace fourfold::backend
