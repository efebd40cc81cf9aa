#include "kernels/all_reduce/bridged_exchange.h"

#include <chrono>

#include "base/check.h"
#include "base/format.h"
#include "kernels/all_reduce/exchange_flags.h"

namespace fourfold::all_reduce {
namespace {

// Looks at a flag before the thread gives way to others, and before it sleeps between two looks: kernels of a
// GPU are a fraction of a millisecond apart, those of the simulator seconds.
constexpr int kLooksAlone = 4000, kLooksGivingWay = 40000;
constexpr std::chrono::microseconds kNap{100};

}  // namespace

BridgedExchange::BridgedExchange(const BridgeOptions& options, Carry carry)
    : Exchange({.ranks = options.ranks,
                .peers = false,
                .way = Way::host,
                .blocks = options.blocks,
                .wait_seconds = options.wait_seconds,
                .overlaps = options.overlaps}),
      rank_(options.rank),
      carry_(std::move(carry)) {
  check(options.rank >= 0 && options.rank < options.ranks, "the rank is one of them", options.rank,
        options.ranks);
  meet_elsewhere(Elsewhere::carried);
}

BridgedExchange::~BridgedExchange() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BridgedExchange::join(int rank, kernels::Machine& machine, int columns, int rows, int gathered) {
  check(rank == rank_, "the others join in their own processes", rank, rank_);
  Exchange::join(rank, machine, columns, rows, gathered);
  memory_ = &machine.memory();
  thread_ = std::thread([this] { stand_in(); });
}

void BridgedExchange::begin_work() {
  if (is_working_) return;
  {
    const std::lock_guard lock(mutex_);
    is_working_ = true;
  }
  news_.notify_all();
}

void BridgedExchange::rethrow_failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool BridgedExchange::has_failed() const {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return true;
  }
  return unanswered(rank_).has_value();
}

void BridgedExchange::begin_anew() {
  is_working_ = false;
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !is_busy_; });
  failure_ = nullptr;
  epoch_ = 1;
  reset(rank_);
}

void BridgedExchange::stand_in() {
  std::unique_lock lock(mutex_);
  for (;;) {
    is_busy_ = false;
    news_.notify_all();
    news_.wait(lock, [&] { return ends_ || (is_working_ && failure_ == nullptr); });
    if (ends_) return;
    is_busy_ = true;
    lock.unlock();
    try {
      if (look()) carry_call();
      lock.lock();
    } catch (...) {
      lock.lock();
      failure_ = std::current_exception();  // known before the kernels that wait have ended
      stop();
    }
  }
}

// Whether every block has sent; not, when there is nothing left to come.
bool BridgedExchange::look() const {
  int looks = 0;
  for (int block = 0; block < options().blocks;) {
    if (static_cast<std::int32_t>(memory_->peek(mailbox_flag(rank_, block)) - epoch_) >= 0) {
      ++block;
      continue;
    }
    if (!is_working_ || ends_) return false;
    if (++looks > kLooksGivingWay)
      std::this_thread::sleep_for(kNap);
    else if (looks > kLooksAlone)
      std::this_thread::yield();
  }
  return true;
}

void BridgedExchange::carry_call() {
  CarriedCall call{};
  memory_->read_shared(&call, carried(epoch_), sizeof call);
  const std::size_t count = std::size_t{call.quads} * 4, bytes = count * sizeof(float);
  part_.resize(count);
  all_.resize(count * static_cast<std::size_t>(options().ranks));
  memory_->read_shared(part_.data(), mailbox(rank_, epoch_), bytes);
  carry_(name_of(call.place), part_, all_);
  for (int rank = 0; rank < options().ranks; ++rank) {
    if (rank == rank_) continue;
    memory_->write_shared(mailbox(rank, epoch_), all_.data() + static_cast<std::size_t>(rank) * count, bytes);
    for (int block = 0; block < options().blocks; ++block) memory_->poke(mailbox_flag(rank, block), epoch_);
  }
  epoch_ = next_epoch(epoch_);
}

std::string BridgedExchange::name_of(std::uint32_t place) const {
  return place < names_.size() ? names_[place] : format("call {}", place);
}

}  // namespace fourfold::all_reduce
