#include "sim/residents.h"

#include <algorithm>

#include "base/format.h"

namespace fourfold::sim {
namespace {

// Looks of every block at flags that have not been written meanwhile. A block's other warps have a turn
// between two of them, so that this is also how many turns they may need until they write.
constexpr std::uint64_t kLooksInVain = 20'000;
constexpr std::size_t kBlocksNamed = 4;

}  // namespace

Residents::~Residents() {
  for (const Running& one : running_) one.block->abandon();
}

void Residents::add(std::unique_ptr<Launched> launched) {
  if (!launches_.empty()) launched->context.predecessor = &launches_.back()->grid;
  dice_ = Dice(launched->config.seed, (std::uint64_t{launched->grid.id} << 32) + 0xFFFFFFFFu);
  at_ = 0;
  looks_ = 0;
  launches_.push_back(std::move(launched));
  start_waiting_blocks();
}

// Blocks of a launch that does not say `together` come one after another.
void Residents::start_waiting_blocks() {
  for (const auto& launch : launches_) {
    while (launch->next < launch->order.size() && (launch->config.together || launch->running == 0)) {
      const int sm = room_.take(launch->grid.id, launch->needs);
      if (sm < 0) break;
      running_.push_back(
          {std::make_unique<Block>(launch->context, stacks_, stacks_taken_), launch.get(), sm});
      stacks_taken_ += static_cast<std::size_t>(launch->config.threads);
      ++launch->running;
      running_.back().block->start(launch->order[launch->next++]);
    }
  }
}

void Residents::end_of(std::size_t at) {
  Launched& launch = *running_[at].launch;
  looks_ = 0;
  if (!launch.config.together && launch.next < launch.order.size()) {
    running_[at].block->start(launch.order[launch.next++]);  // in the place of the one before it
    return;
  }
  room_.give_back(running_[at].sm, launch.grid.id);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
  if (--launch.running == 0 && launch.next == launch.order.size()) launch.grid.complete = true;
  start_waiting_blocks();
}

// Whoever can go on does, in an order of the seed's; when all look for what others bring, the other ranks
// run.
bool Residents::run() {
  while (!running_.empty()) {
    const bool seeded = launches_.back()->config.seed != 0;
    at_ = seeded ? dice_.below(static_cast<std::uint32_t>(running_.size())) : at_ % running_.size();
    bool ended = false;
    try {
      ended = running_[at_].block->go_on();
    } catch (...) {
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at_));  // it has unwound itself
      throw;
    }
    if (ended) {
      end_of(at_);
      continue;
    }
    if (nobody_brings_anything()) return false;
    ++at_;
    if (++turns_ % (running_.size() + 1) == 0) peers_.give_way(rank_);
  }
  return std::all_of(launches_.begin(), launches_.end(),
                     [](const auto& launch) { return launch->grid.complete; });
}

// Other ranks may always bring something, and a kernel that looks at the clock gives up by itself.
bool Residents::nobody_brings_anything() {
  if (!peers_.is_alone()) return false;
  const std::uint64_t news = peers_.news();
  if (news != news_) looks_ = 0;
  news_ = news;
  if (++looks_ < kLooksInVain * running_.size()) return false;
  return std::none_of(launches_.begin(), launches_.end(),
                      [](const auto& launch) { return launch->context.reads_clock; });
}

bool Residents::may_wait_for_successor() const {
  return launches_.size() == 1 && launches_.front()->next == launches_.front()->order.size() &&
         std::all_of(running_.begin(), running_.end(),
                     [](const Running& one) { return one.block->has_released(); });
}

void Residents::deadlock(const std::string& why) const {
  std::string text = why;
  for (const auto& launch : launches_) {
    const std::string name = format("\n grid {} ({})", launch->grid.id, launch->config.name);
    std::size_t named = 0;
    for (const Running& one : running_)
      if (one.launch == launch.get() && named++ < kBlocksNamed)
        text += format("{}, block {}:{}", name, one.block->index(), one.block->waits_text());
    if (named > kBlocksNamed) text += format("{}: {} more blocks wait", name, named - kBlocksNamed);
    const std::size_t left = launch->order.size() - launch->next;
    if (left == 0) continue;
    text += format("{}: {} of {} blocks cannot start: ", name, left, launch->order.size());
    text += launch->running != 0 && !launch->config.together
                ? "they run one after another; a launch whose blocks wait for each other says `together`"
                : room_.refusal(launch->needs);
  }
  FaultPlace place;
  place.kernel = launches_.front()->config.name;
  throw Fault(FaultKind::deadlock, place, text);
}

}  // namespace fourfold::sim
