#include "engine/cache_room.h"

#include <algorithm>

#include "backend/window_pages.h"
#include "base/largest.h"
#include "engine/request.h"

namespace fourfold::engine {
namespace {

constexpr std::int64_t kAnchorsEach = 4;         // of a sequence, where memory is not short
constexpr std::int64_t kPagesToStates = 3;       // bytes of pages to one of states, where it is
constexpr std::int64_t kTokensOfAState = 1'024;  // more states than one for so many tokens would be idle

}  // namespace

std::int64_t page_bytes(const backend::Program& program, std::int64_t page_tokens) {
  std::int64_t bytes = 0;
  for (const backend::KvCache& cache : program.kv_caches)
    if (cache.window == 0) bytes += cache.stored_columns() * element_bytes(cache.format) * page_tokens;
  return std::max<std::int64_t>(bytes, 1);
}

std::int64_t window_bytes(const backend::Program& program, const backend::Capacity& capacity) {
  std::int64_t bytes = 0;
  for (const backend::KvCache& cache : program.kv_caches)
    if (cache.window != 0) bytes += cache.stored_columns() * element_bytes(cache.format);
  return bytes * capacity.page_tokens * backend::WindowPages::count_of(program, capacity);
}

std::int64_t anchor_share(const backend::Program& program, const backend::Capacity& capacity) {
  const std::int64_t each = backend::anchor_bytes(program, capacity.page_tokens);
  if (each == 0) return capacity.page_count;
  const std::int64_t bytes = capacity.page_count * page_bytes(program, capacity.page_tokens);
  const std::int64_t most = capacity.page_count * capacity.page_tokens / kTokensOfAState;
  return std::min(bytes / kPagesToStates / each, most);
}

backend::Capacity with_sequences(backend::Capacity room, std::int64_t sequences) {
  room.state_slot_count = sequences;
  room.row_count = std::max(room.row_count, sequences * (kDraftCountMax + 1));
  return room;
}

std::int64_t sequences_with_room(const backend::Capacity& room, std::int64_t context,
                                 std::int64_t least_pages, std::int64_t most, const Fits& fits) {
  const std::int64_t pages_each = (std::min(context, kTokensEach) + room.page_tokens - 1) / room.page_tokens;
  for (std::int64_t sequences = most; sequences > 1; sequences /= 2) {
    backend::Capacity wanted = with_sequences(room, sequences);
    wanted.page_count = std::max(sequences * pages_each, least_pages);
    if (fits(wanted)) return sequences;
  }
  return 1;
}

backend::Capacity divide_cache(const backend::Program& program, const CacheWish& wish, const Fits& fits) {
  backend::Capacity out = wish.capacity;
  const std::int64_t each = backend::anchor_bytes(program, out.page_tokens);
  const bool chosen = wish.state_bytes < 0 && each > 0;
  const std::int64_t wanted =
      std::min(out.page_count, std::max(kAnchorsEach * out.state_slot_count, anchor_share(program, out)));
  const auto with = [&](std::int64_t pages, std::int64_t anchors) {
    backend::Capacity capacity = out;
    capacity.page_count = pages;
    capacity.anchor_count = anchors;
    return capacity;
  };
  const auto least_beside = [&](std::int64_t pages) {
    if (wish.state_bytes == 0 || (chosen && pages <= wish.least_pages)) return std::int64_t{0};
    if (wish.state_bytes > 0 && each > 0) return std::min(wish.state_bytes / each, pages);
    return anchor_share(program, with(pages, 0));
  };
  if (wish.least_pages < out.page_count)
    out.page_count = largest(0, out.page_count,
                             [&](std::int64_t pages) { return fits(with(pages, least_beside(pages))); });
  out.anchor_count = least_beside(out.page_count);
  if (chosen)
    out.anchor_count = largest(out.anchor_count, std::min(wanted, out.page_count),
                               [&](std::int64_t anchors) { return fits(with(out.page_count, anchors)); });
  return out;
}

}  // namespace fourfold::engine
