#include "nodes/group.h"

#include <algorithm>

#include "backend/collective.h"
#include "nodes/handshake.h"

namespace fourfold::nodes {

int Group::take(int wanted) {
  const std::lock_guard lock(mutex_);
  if (wanted == 0 || wanted >= rank_count() || wanted < -1)
    throw Refused(false, format("there is no rank {} to be: rank 0 is the leader's, the others are 1 to {}",
                                wanted, rank_count() - 1));
  for (int rank = 1; rank < rank_count(); ++rank) {
    Place& place = places_[static_cast<std::size_t>(rank)];
    if (place.state != State::free || (wanted != -1 && wanted != rank)) continue;
    place.state = State::taken;
    return rank;
  }
  // One that was lost may be noticed in a moment.
  throw Refused(true, wanted == -1 ? format("all {} ranks are there", rank_count())
                                   : format("rank {} is there already", wanted));
}

void Group::leave(int rank) {
  const std::lock_guard lock(mutex_);
  places_[static_cast<std::size_t>(rank)].state = State::free;
}

void Group::begin(int rank, std::shared_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[static_cast<std::size_t>(rank)];
  place.state = State::loading;
  place.link = std::move(link);
  changed_.notify_all();
}

void Group::finish(int rank, Loaded loaded) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[static_cast<std::size_t>(rank)];
  if (place.state != State::loading) return;  // lost meanwhile
  place.state = State::ready;
  place.loaded = std::move(loaded);
  changed_.notify_all();
}

bool Group::lose(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[static_cast<std::size_t>(rank)];
  const bool was_ready = place.state == State::ready;
  (was_ready ? place.lost : place.failed) = why;
  place.state = State::taken;
  place.link = nullptr;
  changed_.notify_all();
  return was_ready;
}

Loaded Group::wait_until_ready(int rank, std::chrono::milliseconds patience, const std::string& hint) {
  std::unique_lock lock(mutex_);
  Place& place = places_[static_cast<std::size_t>(rank)];
  const auto until = std::chrono::steady_clock::now() + patience;  // of all attempts together
  const auto has_come = [&] { return place.state == State::loading || place.state == State::ready; };
  while (place.state != State::ready) {
    if (!in_vain_.empty()) throw backend::RankLost(0, in_vain_);
    if (has_come())
      changed_.wait(lock);
    else if (!changed_.wait_until(lock, until, [&] { return has_come() || !in_vain_.empty(); }))
      fail_with_hint(Code::io, hint, "rank {} of {} has not joined within {} s{}", rank, rank_count(),
                     patience.count() / 1000, place.failed.empty() ? "" : "; the last time " + place.failed);
  }
  return place.loaded;
}

void Group::end_waits(const std::string& why) {
  const std::lock_guard lock(mutex_);
  in_vain_ = why;
  changed_.notify_all();
}

std::shared_ptr<Link> Group::link(int rank) const {
  const std::lock_guard lock(mutex_);
  for (int other = 1; other < rank_count(); ++other) {
    const Place& place = places_[static_cast<std::size_t>(other)];
    if (place.state != State::ready || !place.lost.empty()) throw backend::RankLost(other, away_locked());
  }
  return places_[static_cast<std::size_t>(rank)].link;
}

std::shared_ptr<Link> Group::any_link(int rank) const {
  const std::lock_guard lock(mutex_);
  return places_.at(static_cast<std::size_t>(rank)).link;
}

std::vector<std::shared_ptr<Link>> Group::links() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Link>> out;
  for (const Place& place : places_)
    if (place.link) out.push_back(place.link);
  return out;
}

std::string Group::away() const {
  const std::lock_guard lock(mutex_);
  return away_locked();
}

std::string Group::away_locked() const {
  for (int rank = 1; rank < rank_count(); ++rank) {
    const Place& place = places_[static_cast<std::size_t>(rank)];
    if (place.lost.empty()) continue;
    const char* now = place.state == State::ready     ? "it is back"
                      : place.state == State::loading ? "it is back and loads the model"
                                                      : "it is waited for";
    return format("rank {} of {} was lost: {}; {}", rank, rank_count(), place.lost, now);
  }
  return {};
}

bool Group::mend() {
  const std::lock_guard lock(mutex_);
  if (!std::all_of(places_.begin() + 1, places_.end(),
                   [](const Place& place) { return place.state == State::ready; }))
    return false;
  for (Place& place : places_) place.lost.clear();
  return true;
}

}  // namespace fourfold::nodes
