#include "sim/clock.h"

#include <cstring>

namespace fourfold::sim {
namespace {

// Four signed clocks: SSE2 and NEON compare signed words, and clocks stay below 2^21.
typedef std::int32_t Lanes4 __attribute__((vector_size(16)));

bool join_words(std::uint32_t* into, const std::uint32_t* from, std::uint32_t count) {
  Lanes4 grew{};
  for (std::uint32_t i = 0; i < count; i += 4) {
    Lanes4 a, b;
    std::memcpy(&a, into + i, sizeof a);
    std::memcpy(&b, from + i, sizeof b);
    const Lanes4 larger = b > a;
    grew |= larger;
    a = (b & larger) | (a & ~larger);
    std::memcpy(into + i, &a, sizeof a);
  }
  return (grew[0] | grew[1] | grew[2] | grew[3]) != 0;
}

}  // namespace

ClockPool::ClockPool(std::uint32_t parties, std::uint32_t capacity)
    : used_((parties + 3u) & ~3u), capacity_((capacity + 3u) & ~3u) {}

void ClockPool::use(std::uint32_t parties) {
  const std::uint32_t wanted = (parties + 3u) & ~3u;
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
