#include "backend/anchor_shelf.h"

#include "base/error.h"

namespace fourfold::backend {

float* AnchorShelf::put(std::int32_t anchor, std::int64_t position, std::int64_t count) {
  if (anchor < 0 || anchor >= std::ssize(places_))
    fail(Code::invalid_request, "anchor {}; there is room for {}", anchor, places_.size());
  Place& place = places_[static_cast<std::size_t>(anchor)];
  place.position = position;
  place.numbers.resize(static_cast<std::size_t>(count));
  return place.numbers.data();
}

const float* AnchorShelf::get(std::int32_t anchor, std::int64_t position) const {
  if (anchor < 0 || anchor >= std::ssize(places_))
    fail(Code::invalid_request, "anchor {}; there is room for {}", anchor, places_.size());
  const Place& place = places_[static_cast<std::size_t>(anchor)];
  if (position < 1 || place.position != position)
    fail(Code::invalid_request, "anchor {} holds the state at {}, not at {}", anchor, place.position,
         position);
  return place.numbers.data();
}

}  // namespace fourfold::backend
