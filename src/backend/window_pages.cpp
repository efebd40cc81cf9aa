#include "backend/window_pages.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"

namespace fourfold::backend {
namespace {

std::int64_t whole_pages(std::int64_t positions, std::int64_t page_tokens) {
  return (positions + page_tokens - 1) / page_tokens;
}

// The widest: one table serves all layers that have a window.
std::int64_t window_of(const Program& program) {
  std::int64_t window = 0;
  for (const KvCache& cache : program.kv_caches) window = std::max(window, cache.window);
  return window;
}

// Where blocks of 64 do not begin with pages, what is held may begin in the middle of one.
std::int64_t cut_pages(std::int64_t page_tokens) { return kAnchorTokens % page_tokens == 0 ? 0 : 1; }

}  // namespace

// Between passes a slot may go on at any of the last 127 positions or fewer (SlotPast), whose rows see
// window - 1 before them. In a pass all rows together add at most row_count positions, which lie in as many
// pages more, and one for each slot whose rows begin or end in the middle of one.
std::int64_t WindowPages::count_of(const Program& program, const Capacity& capacity) {
  const std::int64_t window = window_of(program), page_tokens = capacity.page_tokens;
  if (window == 0) return 0;
  const std::int64_t longest =
      std::min(capacity.page_count, whole_pages(program.position_limit, page_tokens));
  const std::int64_t each =
      seen_count(program, page_tokens) + whole_pages(2 * kAnchorTokens - 1, page_tokens);
  return std::min(capacity.state_slot_count * (each + 1) + capacity.row_count / page_tokens,
                  capacity.state_slot_count * longest);
}

std::int64_t WindowPages::seen_count(const Program& program, std::int64_t page_tokens) {
  const std::int64_t window = window_of(program);
  return window < 2 ? 0 : whole_pages(window - 1, page_tokens) + cut_pages(page_tokens);
}

WindowPages::WindowPages(const Program& program, const Capacity& capacity)
    : window_(window_of(program)),
      page_tokens_(capacity.page_tokens),
      page_count_(count_of(program, capacity)) {
  if (page_count_ == 0) return;
  held_.resize(static_cast<std::size_t>(capacity.state_slot_count));
  for (std::int64_t page = page_count_; page > 0; --page)
    free_.push_back(static_cast<std::int32_t>(page - 1));
}

std::int64_t WindowPages::first_seen_page(std::int64_t position) const {
  return std::max<std::int64_t>(position - window_ + 1, 0) / page_tokens_;
}

void WindowPages::give_back(Held& held, std::int64_t count) {
  count = std::clamp<std::int64_t>(count, 0, std::ssize(held.pages));
  const auto end = held.pages.begin() + count;
  free_.insert(free_.end(), held.pages.begin(), end);
  held.pages.erase(held.pages.begin(), end);
  held.first += count;
}

void WindowPages::extend(Held& held, std::int64_t end) {
  while ((held.first + std::ssize(held.pages)) * page_tokens_ < end) {
    check(!free_.empty(), "there are pages for every batch within the capacity", page_count_, held_.size());
    held.pages.push_back(free_.back());
    free_.pop_back();
  }
}

void WindowPages::begin(const Batch& batch, std::span<const SlotPast> slots) {
  if (page_count_ == 0) return;
  for (std::size_t slot = 0; slot < held_.size(); ++slot)
    give_back(held_[slot], first_seen_page(slots[slot].resumable_from()) - held_[slot].first);
  for (const SequenceRows& rows : batch.sequences)
    if (rows.position == 0) hold(rows.state_slot, 0, 0);
  table_.assign(batch.pages.size(), behind());
  for (const SequenceRows& rows : batch.sequences) {
    Held& held = held_[static_cast<std::size_t>(rows.state_slot)];
    check(held.first <= first_seen_page(rows.position), "what its rows see is there", rows.state_slot,
          rows.position, held.first);
    extend(held, rows.position + rows.row_count);
    const std::int64_t count = std::min<std::int64_t>(std::ssize(held.pages), rows.page_count - held.first);
    std::copy_n(held.pages.begin(), count, table_.begin() + rows.page_begin + held.first);
  }
}

std::span<const std::int32_t> WindowPages::seen(std::int32_t slot, std::int64_t position) const {
  if (page_count_ == 0 || window_ < 2) return {};
  const Held& held = held_.at(static_cast<std::size_t>(slot));
  const std::int64_t first = first_seen_page(position), end = whole_pages(position, page_tokens_);
  check(held.first <= first && end <= held.first + std::ssize(held.pages), "what it sees is there", slot,
        position, held.first, held.pages.size());
  return std::span(held.pages)
      .subspan(static_cast<std::size_t>(first - held.first), static_cast<std::size_t>(end - first));
}

void WindowPages::hold(std::int32_t slot, std::int64_t position, std::int64_t end) {
  if (page_count_ == 0) return;
  Held& held = held_.at(static_cast<std::size_t>(slot));
  give_back(held, std::ssize(held.pages));
  held.first = first_seen_page(position);
  extend(held, end);
}

std::string WindowPages::problem() const {
  std::vector<int> holders(static_cast<std::size_t>(page_count_));
  for (const std::int32_t page : free_) ++holders[static_cast<std::size_t>(page)];
  for (const Held& held : held_)
    for (const std::int32_t page : held.pages) ++holders[static_cast<std::size_t>(page)];
  for (std::size_t page = 0; page < holders.size(); ++page)
    if (holders[page] != 1) return format("page {} is in {} places", page, holders[page]);
  return {};
}

}  // namespace fourfold::backend
