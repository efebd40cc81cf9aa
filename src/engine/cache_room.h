// How a server's memory for caches is divided: pages of keys and values, and states for its prefix cache
// (recurrent ones, and what windows see). A prefix can be taken up only where its state was kept, so pages
// without states would answer nobody twice: where memory is short, states have a quarter of it.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/batch.h"

namespace fourfold::engine {

// Of keys and values, on one rank, in layers that keep every position.
std::int64_t page_bytes(const backend::Program& program, std::int64_t page_tokens);
// And of all pages of layers that see a window, which follow from the sequences and the rows of a step.
std::int64_t window_bytes(const backend::Program& program, const backend::Capacity& capacity);

// States beside the capacity's pages where memory is short. A model without recurrent layers and windows
// needs nothing kept beside its pages: one for each.
std::int64_t anchor_share(const backend::Program& program, const backend::Capacity& capacity);

using Fits = std::function<bool(const backend::Capacity&)>;  // whether there is memory for a capacity

// How many sequences may run at once where nobody says: `most`, halved until each has room for its recurrent
// state and kTokensEach tokens, or a whole context where that is shorter, and all together for `least_pages`.
// `room` has what does not change.
inline constexpr std::int64_t kTokensEach = 8'192;
std::int64_t sequences_with_room(const backend::Capacity& room, std::int64_t context,
                                 std::int64_t least_pages, std::int64_t most, const Fits& fits);
// The room of so many: their slots, and the rows of their drafts.
backend::Capacity with_sequences(backend::Capacity room, std::int64_t sequences);

struct CacheWish {
  backend::Capacity capacity;     // with as many pages as could be used
  std::int64_t least_pages = 0;   // states make room for these; as many as there are: somebody said how many
  std::int64_t state_bytes = -1;  // of a rank; 0: no prefix cache; -1: chosen
};

// The most pages up to those wanted that fit, and states: as many as were asked for, or their share, and more
// up to a few for each sequence where memory is left.
backend::Capacity divide_cache(const backend::Program& program, const CacheWish& wish, const Fits& fits);

}  // namespace fourfold::engine
