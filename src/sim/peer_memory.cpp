#include "sim/peer_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::sim {
namespace {

// What is remembered of another rank's messages: many calls back. Forgetting makes a race of what was
// ordered, never the other way round.
constexpr std::size_t kHeardMost = 2048;
constexpr std::size_t kAlignment = 256;

}  // namespace

PeerMemory::PeerMemory(int ranks, std::uint64_t seed)
    : ranks_(ranks), seeded_(seed != 0), dice_(seed | 1u), inside_(static_cast<std::size_t>(ranks)) {
  if (ranks < 1 || ranks > kRanksMost)
    fail(Code::invalid_request, "{} ranks; the simulator takes 1 to {}", ranks, kRanksMost);
}

// ---- the host ----

void* PeerMemory::allocate(std::size_t bytes, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  Region region;
  region.bytes = bytes;
  region.name = name;
  region.data.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  region.words.reset(
      static_cast<Word*>(std::calloc(rounded / 4, sizeof(Word))));  // pages appear when touched
  if (!region.data || !region.words)
    fail(Code::out_of_memory, "no room for {} bytes that ranks share ({})",
         with_commas(static_cast<long long>(bytes)), name);
  std::byte* const start = region.data.get();
  regions_.emplace(start, std::move(region));
  return start;
}

void PeerMemory::release(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(static_cast<const std::byte*>(pointer));
  check(found != regions_.end(), "only what allocate returned is released, once");
  const std::byte* const end = found->first + found->second.bytes;
  std::erase_if(spoken_, [&](const auto& entry) {
    const auto* at = static_cast<const std::byte*>(entry.first);
    return at >= pointer && at < end;
  });
  regions_.erase(found);
}

const PeerMemory::Region* PeerMemory::region_of(const void* start, std::size_t bytes) const {
  const auto* from = static_cast<const std::byte*>(start);
  const auto found = regions_.lower_bound(from);  // the last that begins at or before it
  if (found == regions_.end()) return nullptr;
  const auto at = static_cast<std::size_t>(from - found->first);
  return at <= found->second.bytes && bytes <= found->second.bytes - at ? &found->second : nullptr;
}

bool PeerMemory::contains(const void* start, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return region_of(start, bytes) != nullptr;
}

std::string PeerMemory::describe(const void* address) const {
  const auto found = regions_.lower_bound(static_cast<const std::byte*>(address));
  if (found == regions_.end()) return "an address no rank shares";
  return format("{} + {}", found->second.name,
                with_commas(static_cast<long long>(static_cast<const std::byte*>(address) - found->first)));
}

template <class F>
PeerMemory::Answer PeerMemory::each_word(const void* start, std::uint32_t bytes, F&& visit) {
  const Region* region = region_of(start, bytes);
  if (region == nullptr || bytes == 0)
    return {region != nullptr, FaultKind::out_of_bounds, format("{} bytes at {}", bytes, describe(start))};
  const auto from = static_cast<std::size_t>(static_cast<const std::byte*>(start) - region->data.get());
  for (std::size_t word = from / 4; word * 4 < from + bytes; ++word) {
    const std::size_t first = std::max(from, word * 4) - word * 4;
    const std::size_t last = std::min<std::size_t>(from + bytes, word * 4 + 4) - word * 4;
    const unsigned mask = (0xFu >> (4 - (last - first))) << first;
    if (Answer answer = visit(region->words.get()[word], mask, region->data.get() + word * 4); !answer.ok)
      return answer;
  }
  return {};
}

void PeerMemory::write_from_host(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Answer answer =
      each_word(to, static_cast<std::uint32_t>(bytes), [](Word& word, unsigned mask, void*) {
        const auto written = static_cast<std::uint8_t>(word.written | mask);
        word = {};
        word.written = written;
        return Answer{};
      });
  check(answer.ok, "the host touches memory that ranks share", answer.text.c_str());
  std::memcpy(to, from, bytes);
}

void PeerMemory::forget(const void* start, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  each_word(start, static_cast<std::uint32_t>(bytes), [](Word& word, unsigned, void*) {
    word = {};
    return Answer{};
  });
}

void PeerMemory::read_to_host(void* to, const void* from, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (region_of(from, bytes) == nullptr)
    throw Fault(FaultKind::out_of_bounds, {}, format("the host reads {} bytes at {}", bytes, describe(from)));
  std::memcpy(to, from, bytes);
}

// ---- threads of kernels ----

// Whether an access is over, as far as this thread knows.
bool PeerMemory::ordered(int rank, const GlobalAccessor& who, const Stamp& before) const {
  if (before.grid == 0) return true;
  if (before.rank == rank) {
    if (before.grid == who.grid ? before.block == who.block && who.view.ordered(before.epoch)
                                : before.grid <= who.visible)
      return true;
  }
  const auto& heard = heard_[static_cast<std::size_t>(rank)][before.rank];
  for (auto entry = heard.rbegin(); entry != heard.rend(); ++entry) {
    const bool known = entry->grid == who.grid ? entry->block == who.block && who.view.ordered(entry->epoch)
                                               : entry->grid <= who.visible;
    if (!known) continue;
    const Message& message = *entry->message;
    if (message.visible >= before.grid) return true;
    if (message.grid == before.grid && message.block == before.block &&
        clock_of(before.epoch) <= message.happened[party_of(before.epoch)])
      return true;
  }
  return false;
}

PeerMemory::Answer PeerMemory::complaint(FaultKind kind, int rank, const void* address, const char* what,
                                         const Stamp& other) const {
  return {false, kind,
          format("{}: {} by rank {}, block {} of its grid {}, at line {}, and rank {} has not heard of it",
                 describe(address), what, other.rank, other.block, other.grid, other.line, rank)};
}

PeerMemory::Answer PeerMemory::read(int rank, const GlobalAccessor& who, const void* from, void* value,
                                    std::uint32_t bytes) {
  const std::lock_guard lock(mutex_);
  const Answer answer = each_word(from, bytes, [&](Word& word, unsigned mask, const void* address) -> Answer {
    if ((word.written & mask) != mask)
      return {false, FaultKind::unwritten_read,
              format("{}: nobody ever wrote these bytes", describe(address))};
    if (!ordered(rank, who, word.write))
      return complaint(FaultKind::race, rank, address, "written", word.write);
    word.read[rank] = {who.grid, who.epoch, static_cast<std::uint16_t>(who.block),
                       static_cast<std::uint16_t>(rank), who.site};
    return {};
  });
  if (answer.ok) std::memcpy(value, from, bytes);
  return answer;
}

PeerMemory::Answer PeerMemory::judge_write(int rank, const GlobalAccessor& who, const Word& word,
                                           const void* address) const {
  if (!ordered(rank, who, word.write))
    return complaint(FaultKind::race, rank, address, "written", word.write);
  for (int reader = 0; reader < ranks_; ++reader)
    if (!ordered(rank, who, word.read[reader]))
      return complaint(FaultKind::race, rank, address, "read", word.read[reader]);
  return {};
}

PeerMemory::Answer PeerMemory::write(int rank, const GlobalAccessor& who, void* to, const void* value,
                                     std::uint32_t bytes) {
  const std::lock_guard lock(mutex_);
  const Answer answer = each_word(to, bytes, [&](Word& word, unsigned mask, const void* address) -> Answer {
    if (Answer judged = judge_write(rank, who, word, address); !judged.ok) return judged;
    word.write = {who.grid, who.epoch, static_cast<std::uint16_t>(who.block),
                  static_cast<std::uint16_t>(rank), who.site};
    word.written = static_cast<std::uint8_t>(word.written | mask);
    return {};
  });
  if (answer.ok) std::memcpy(to, value, bytes);
  news_.fetch_add(1, std::memory_order_relaxed);
  return answer;
}

PeerMemory::Answer PeerMemory::store_release(int rank, const GlobalAccessor& who, void* to,
                                             std::uint32_t value, bool speaks) {
  const std::lock_guard lock(mutex_);
  const Answer answer = each_word(to, 4, [](Word& word, unsigned mask, void*) -> Answer {
    word.written = static_cast<std::uint8_t>(word.written | mask);
    word.write = {};  // flags are read and written at any time
    return {};
  });
  if (!answer.ok) return answer;
  std::memcpy(to, &value, 4);
  news_.fetch_add(1, std::memory_order_relaxed);
  if (!speaks) {
    spoken_.erase(to);
    return answer;
  }
  auto message = std::make_shared<Message>();
  message->grid = who.grid;
  message->visible = who.visible;
  message->block = static_cast<std::uint16_t>(who.block);
  message->happened.assign(who.view.happened, who.view.happened + who.view.threads);
  message->happened[who.view.self] = clock_of(who.epoch);
  spoken_[to] = {rank, std::move(message)};
  return answer;
}

PeerMemory::Answer PeerMemory::load_acquire(int rank, const GlobalAccessor& who, const void* from,
                                            std::uint32_t& value, bool hears) {
  const std::lock_guard lock(mutex_);
  const Answer answer = each_word(from, 4, [&](Word& word, unsigned mask, const void* address) -> Answer {
    if ((word.written & mask) == mask) return {};
    return {false, FaultKind::unwritten_read, format("{}: nobody ever wrote this flag", describe(address))};
  });
  if (!answer.ok) return answer;
  std::memcpy(&value, from, 4);
  const auto found = spoken_.find(from);
  if (found == spoken_.end() || !hears) return answer;
  auto& heard = heard_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(found->second.first)];
  // Polling hears the same message again and again, in turns with other threads: the first time is enough,
  // and more would crowd out what is still needed.
  const auto is_same = [&](const Heard& entry) {
    return entry.message == found->second.second && entry.grid == who.grid && entry.block == who.block &&
           party_of(entry.epoch) == party_of(who.epoch);
  };
  if (std::any_of(heard.rbegin(), heard.rend(), is_same)) return answer;
  heard.push_back({who.grid, who.block, who.epoch, found->second.second});
  if (heard.size() > kHeardMost) heard.pop_front();
  return answer;
}

// ---- time and turns ----

std::uint64_t PeerMemory::nanoseconds() const {
  if (seeded_) {
    const std::lock_guard lock(mutex_);
    return turns_ * 1000;
  }
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// The mutex is held.
void PeerMemory::pass_turn(int rank) {
  ++turns_;
  std::vector<int> others;
  for (int other = 0; other < ranks_; ++other)
    if (other != rank && inside_[static_cast<std::size_t>(other)]) others.push_back(other);
  if (others.empty()) {
    if (!inside_[static_cast<std::size_t>(rank)]) turn_ = -1;
    return;
  }
  turn_ = others[dice_.below(static_cast<std::uint32_t>(others.size()))];
  turn_changed_.notify_all();
}

void PeerMemory::give_way(int rank) {
  if (!seeded_) {
    if (ranks_ > 1) std::this_thread::yield();
    return;
  }
  std::unique_lock lock(mutex_);
  pass_turn(rank);
  turn_changed_.wait(lock, [&] { return turn_ == rank || entered_ == 0; });
}

void PeerMemory::enter(int rank) {
  std::unique_lock lock(mutex_);
  inside_[static_cast<std::size_t>(rank)] = true;
  if (++entered_ == ranks_) {
    turn_ = static_cast<int>(dice_.below(static_cast<std::uint32_t>(ranks_)));
    turn_changed_.notify_all();
  }
  turn_changed_.wait(lock, [&] { return entered_ == ranks_ && turn_ == rank; });
}

void PeerMemory::leave(int rank) {
  const std::lock_guard lock(mutex_);
  inside_[static_cast<std::size_t>(rank)] = false;
  pass_turn(rank);
}

}  // namespace fourfold::sim
