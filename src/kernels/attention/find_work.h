// Which part of the ragged batch a block has: sequences follow each other without gaps, so where one begins
// is a sum over those before it. Every warp that needs it makes the sum itself, 32 sequences at a time; all
// its lanes must ask.
#pragma once

#include <cstdint>

#include "base/macros.h"
#include "kernels/device/types.h"
#include "kernels/step/step_tables.h"

namespace fourfold::attention {

// The sequence that contains an item, and where in it.
struct Found {
  int sequence = -1;  // -1: beyond the last item
  int item = 0;       // counted from the sequence's first
  int slots = 0;      // of the sequences before it
  int first_row = 0;
  int row_count = 0;
  int position = 0;  // of the first row
  int page_begin = 0;
};

// Inclusive sum over lanes 0 to this one.
template <class Cta>
FOURFOLD_DEVICE int sum_to_lane(Cta cta, int value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = cta.shuffle(value, cta.lane() >= step ? cta.lane() - step : 0);
    if (cta.lane() >= step) value += before;
  }
  return value;
}

// items_of(place) and slots_of(place) count for one sequence that has rows.
template <class Cta, class Items, class Slots>
FOURFOLD_DEVICE Found find_item(Cta cta, const step::Tables& tables, std::int64_t item, const Items& items_of,
                                const Slots& slots_of) {
  Found found;
  int slots_before = 0;
  for (int first = 0; first < tables.sequence_limit; first += 32) {
    const int mine = first + cta.lane();
    step::SequencePlace place{};
    if (mine < tables.sequence_limit) {
      const auto* words = reinterpret_cast<const device::U32x4*>(tables.sequences + mine);
      const device::U32x4 head = cta.load(words);
      place.page_begin = cta.load(&tables.sequences[mine].page_begin);
      place.first_row = static_cast<int>(head.v[0]);
      place.row_count = static_cast<int>(head.v[1]);
      place.position = static_cast<int>(head.v[2]);
    }
    const bool used = place.row_count > 0;
    const int items = used ? items_of(place) : 0, slots = used ? slots_of(place) : 0;
    const int items_to = sum_to_lane(cta, items), slots_to = sum_to_lane(cta, slots);
    const std::uint32_t behind = cta.ballot(item < items_to);
    if (behind != 0) {
      const int owner = Cta::lowest_bit(behind);
      found.sequence = first + owner;
      found.item = static_cast<int>(item) - cta.shuffle(items_to - items, owner);
      found.slots = slots_before + cta.shuffle(slots_to - slots, owner);
      found.first_row = cta.shuffle(place.first_row, owner);
      found.row_count = cta.shuffle(place.row_count, owner);
      found.position = cta.shuffle(place.position, owner);
      found.page_begin = cta.shuffle(place.page_begin, owner);
      return found;
    }
    item -= cta.shuffle(items_to, 31);
    slots_before += cta.shuffle(slots_to, 31);
  }
  return found;
}

// Slots of all sequences before this one.
template <class Cta, class Slots>
FOURFOLD_DEVICE int slots_before(Cta cta, const step::Tables& tables, int sequence, const Slots& slots_of) {
  int sum = 0;
  for (int mine = cta.lane(); mine < sequence; mine += 32) {
    const device::U32x4 head = cta.load(reinterpret_cast<const device::U32x4*>(tables.sequences + mine));
    const int row_count = static_cast<int>(head.v[1]);
    if (row_count > 0)
      sum += static_cast<int>(slots_of(static_cast<int>(head.v[2]) + row_count - 1, row_count));
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += cta.shuffle_xor(sum, mask);
  return sum;
}

}  // namespace fourfold::attention
