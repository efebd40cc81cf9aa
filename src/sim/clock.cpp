#include "sim/clock.h"

#include <cstring>

#include "sim/vector_width.h"

namespace fourfold::sim {
namespace {

// Signed clocks, for SSE2 and NEON compare signed words, and clocks stay below 2^21.
typedef std::int32_t Lanes4 __attribute__((vector_size(16)));
typedef std::int32_t Lanes8 __attribute__((vector_size(32)));

template <class Lanes>
[[gnu::always_inline]] inline bool join_lanes(std::uint32_t* into, const std::uint32_t* from,
                                              std::uint32_t count) {
  Lanes grew{};
  for (std::uint32_t i = 0; i < count; i += sizeof(Lanes) / sizeof(std::uint32_t)) {
    Lanes a, b;
    std::memcpy(&a, into + i, sizeof a);
    std::memcpy(&b, from + i, sizeof b);
    const Lanes larger = b > a;
    grew |= larger;
    a = larger ? b : a;
    std::memcpy(into + i, &a, sizeof a);
  }
  std::int32_t any = 0;
  for (std::size_t i = 0; i < sizeof(Lanes) / sizeof(std::int32_t); ++i) any |= grew[i];
  return any != 0;
}

#ifdef FOURFOLD_SIM_EIGHT_LANES
FOURFOLD_SIM_EIGHT_LANES bool join_eight(std::uint32_t* into, const std::uint32_t* from,
                                         std::uint32_t count) {
  return join_lanes<Lanes8>(into, from, count);
}
#endif
bool join_words(std::uint32_t* into, const std::uint32_t* from, std::uint32_t count) {
#ifdef FOURFOLD_SIM_EIGHT_LANES
  if (has_eight_lanes) return join_eight(into, from, count);
#endif
  return join_lanes<Lanes4>(into, from, count);
}

constexpr std::uint32_t whole_lanes(std::uint32_t parties) { return (parties + 7u) & ~7u; }

}  // namespace

ClockPool::ClockPool(std::uint32_t parties, std::uint32_t capacity)
    : used_(whole_lanes(parties)), capacity_(whole_lanes(capacity)) {}

void ClockPool::use(std::uint32_t parties) {
  const std::uint32_t wanted = whole_lanes(parties);
  for (std::uint32_t i = used_; i < wanted; ++i)
    for (const auto& vector : vectors_) vector->happened[i] = vector->fenced[i] = vector->settled[i] = 0;
  used_ = wanted;
}

ClockVector* ClockPool::take() {
  if (free_.empty()) {
    storage_.push_back(std::make_unique<std::uint32_t[]>(3 * capacity_));
    vectors_.push_back(std::make_unique<ClockVector>());
    ClockVector* const fresh = vectors_.back().get();
    fresh->pool = this;
    fresh->happened = storage_.back().get();
    fresh->fenced = fresh->happened + capacity_;
    fresh->settled = fresh->fenced + capacity_;
    free_.push_back(fresh);
  }
  ClockVector* const vector = free_.back();
  free_.pop_back();
  vector->references = 1;
  return vector;
}

ClockRef ClockPool::zero() {
  ClockVector* const vector = take();
  vector->visible = 0;
  std::memset(vector->happened, 0, used_ * sizeof(std::uint32_t));
  std::memset(vector->fenced, 0, used_ * sizeof(std::uint32_t));
  std::memset(vector->settled, 0, used_ * sizeof(std::uint32_t));
  return ClockRef(vector);
}

ClockRef ClockPool::copy(const ClockVector& from) {
  ClockVector* const vector = take();
  vector->visible = from.visible;
  std::memcpy(vector->happened, from.happened, used_ * sizeof(std::uint32_t));
  std::memcpy(vector->fenced, from.fenced, used_ * sizeof(std::uint32_t));
  std::memcpy(vector->settled, from.settled, used_ * sizeof(std::uint32_t));
  return ClockRef(vector);
}

bool ClockPool::join(ClockVector& into, const ClockVector& from) const {
  bool grew = join_words(into.happened, from.happened, used_);
  grew |= join_words(into.fenced, from.fenced, used_);
  grew |= join_words(into.settled, from.settled, used_);
  if (from.visible > into.visible) {
    into.visible = from.visible;
    grew = true;
  }
  return grew;
}

void ClockPool::fence(ClockVector& vector) const {
  std::memcpy(vector.fenced, vector.happened, used_ * sizeof(std::uint32_t));
}

void ClockPool::settle(ClockVector& into, const ClockVector& from) const {
  join_words(into.settled, from.happened, used_);
}

}  // namespace fourfold::sim
