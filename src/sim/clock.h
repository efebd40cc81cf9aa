// Happened-before, kept as vector clocks. Every thread of a block has a clock that ticks at each of its
// releases; a vector says how far each party (threads, then agents: one per mbarrier for its copies, one per
// warpgroup for its wgmmas) is known to have come. A second vector says how far each thread's ordinary writes
// are also visible to the async proxy (a fence stands on the path). A third says how far each thread's
// ordinary reads are complete: a load may still be on its way when a warp barrier has been passed, and a bulk
// copy is no ordinary write that would wait behind it.
//
// Vectors are immutable once shared. After a warp or block barrier all its threads point to one vector and
// differ only in their own, private component; that is what makes barriers and waits cheap.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace fourfold::sim {

// Who and when, packed: an access remembers the party and that party's clock.
using Epoch = std::uint32_t;
constexpr int kClockBits = 21;
constexpr std::uint32_t kClockMax = (1u << kClockBits) - 1;
constexpr Epoch make_epoch(std::uint32_t party, std::uint32_t clock) { return party << kClockBits | clock; }
constexpr std::uint32_t party_of(Epoch epoch) { return epoch >> kClockBits; }
constexpr std::uint32_t clock_of(Epoch epoch) { return epoch & kClockMax; }

class ClockPool;

struct ClockVector {
  ClockPool* pool;
  std::uint32_t references;
  std::uint32_t visible;    // grids up to this one are complete (programmatic dependent launch)
  std::uint32_t* happened;  // [parties]
  std::uint32_t* fenced;    // [parties]
  std::uint32_t* settled;   // [parties]
};

// A counted reference; copies share the vector.
class ClockRef {
 public:
  ClockRef() = default;
  explicit ClockRef(ClockVector* vector) : vector_(vector) {}  // takes over the first reference
  ClockRef(const ClockRef& other) : vector_(other.vector_) {
    if (vector_) ++vector_->references;
  }
  ClockRef(ClockRef&& other) noexcept : vector_(std::exchange(other.vector_, nullptr)) {}
  ClockRef& operator=(const ClockRef& other) {
    if (vector_ == other.vector_) return *this;
    if (other.vector_) ++other.vector_->references;
    drop();
    vector_ = other.vector_;
    return *this;
  }
  ClockRef& operator=(ClockRef&& other) noexcept {
    std::swap(vector_, other.vector_);
    return *this;
  }
  ~ClockRef() { drop(); }

  ClockVector* get() const { return vector_; }
  ClockVector& operator*() const { return *vector_; }
  ClockVector* operator->() const { return vector_; }
  explicit operator bool() const { return vector_ != nullptr; }
  bool operator==(const ClockRef& other) const { return vector_ == other.vector_; }

 private:
  void drop();
  ClockVector* vector_ = nullptr;
};

class ClockPool {
 public:
  // Room for `capacity` parties, of which the first `parties` are in use.
  ClockPool(std::uint32_t parties, std::uint32_t capacity);
  // Parties come and go from block to block; newcomers start at zero in every vector.
  void use(std::uint32_t parties);

  ClockRef zero();
  ClockRef copy(const ClockVector& from);
  // into = max(into, from), component by component; says whether anything grew.
  bool join(ClockVector& into, const ClockVector& from) const;
  // Everything that happened becomes visible to the async proxy.
  void fence(ClockVector& vector) const;
  // Every read that `from` knows of is complete for whoever acquires `into`.
  void settle(ClockVector& into, const ClockVector& from) const;
  void take_back(ClockVector* vector) { free_.push_back(vector); }

 private:
  ClockVector* take();

  std::uint32_t used_;  // parties in use and capacity, both in whole SIMD registers
  std::uint32_t capacity_;
  std::vector<std::unique_ptr<std::uint32_t[]>> storage_;
  std::vector<std::unique_ptr<ClockVector>> vectors_;
  std::vector<ClockVector*> free_;
};

inline void ClockRef::drop() {
  if (vector_ && --vector_->references == 0) vector_->pool->take_back(vector_);
}

// What one thread knows at one moment: enough to judge whether an earlier access is ordered before it.
struct View {
  const std::uint32_t* happened;
  const std::uint32_t* fenced;
  const std::uint32_t* settled;
  std::uint32_t self;         // party of the looking thread
  std::uint32_t own_fenced;   // its own writes up to this clock are visible to the async proxy
  std::uint32_t own_settled;  // its own reads up to this clock are complete
  std::uint32_t threads;  // parties below this number are threads, the others are agents of the async proxy

  bool ordered(Epoch epoch) const {
    const std::uint32_t party = party_of(epoch);
    return party == self || clock_of(epoch) <= happened[party];
  }
  // Of a write that is ordered: may wgmma read it, may the copy engine overwrite it?
  bool reaches_async_proxy(Epoch epoch) const {
    const std::uint32_t party = party_of(epoch);
    if (party >= threads) return true;
    return clock_of(epoch) <= (party == self ? own_fenced : fenced[party]);
  }
  // Of a read that is ordered: has it its value, so that a copy may overwrite what it read?
  bool read_is_complete(Epoch epoch) const {
    const std::uint32_t party = party_of(epoch);
    if (party >= threads) return true;
    return clock_of(epoch) <= (party == self ? own_settled : settled[party]);
  }
};

}  // namespace fourfold::sim
