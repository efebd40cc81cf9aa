#include "backend/cuda/load/upload_ring.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/parallel.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::int64_t kReadersMax = 16;

}  // namespace

UploadRing::UploadRing(kernels::Memory& memory, std::size_t slot_bytes)
    : memory_(memory), slot_bytes_(slot_bytes), slots_(kSlots) {
  const std::int64_t readers = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, kReadersMax);
  // The readers are one long parallel_for, so that what they call does its own ranges in place.
  readers_ = std::thread([this, readers] {
    parallel_for(readers, 1, [this](std::int64_t, std::int64_t) { read_until_closed(); });
  });
}

UploadRing::~UploadRing() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    tasks_.clear();
  }
  task_there_.notify_all();
  readers_.join();
  try {
    for (const Slot& slot : slots_)
      if (slot.memory != nullptr) memory_.release_host(slot.memory);
  } catch (const Error&) {  // of a device that is lost: what lost it is already on its way
  }
}

void UploadRing::read_until_closed() {
  std::unique_lock lock(mutex_);
  for (;;) {
    task_there_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (closed_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      task.run();
    } catch (...) {
      error = std::current_exception();
    }
    task.run = nullptr;  // what it holds goes before anybody hears of its end
    lock.lock();
    Slot& slot = *task.slot;
    if (error && (!slot.error || task.index < slot.failed_task)) {
      slot.error = error;
      slot.failed_task = task.index;
    }
    if (--slot.unfinished == 0) task_done_.notify_all();
  }
}

UploadRing::Place UploadRing::reserve(std::size_t bytes) {
  Slot& slot = slots_[current_];
  check(bytes <= room(), "what is reserved fits the slot", bytes, room());
  if (slot.memory == nullptr) slot.memory = static_cast<std::byte*>(memory_.allocate_host(slot_bytes_));
  const Place place{slot.memory + slot.used, slot.used};
  slot.used = std::min(slot_bytes_, (slot.used + bytes + kAlignment - 1) / kAlignment * kAlignment);
  return place;
}

void UploadRing::fill(std::function<void()> task) {
  Slot& slot = slots_[current_];
  {
    const std::lock_guard lock(mutex_);
    ++slot.unfinished;
    tasks_.push_back({&slot, slot.task_count++, std::move(task)});
  }
  task_there_.notify_one();
}

void UploadRing::then(std::function<void()> launch) {
  slots_[current_].launches.push_back(std::move(launch));
}

// The machine's memory can only be waited for as a whole. So the wait comes just before the next slot is
// sent: by then the slot before has mostly arrived, and while this one is copied the readers fill the others.
void UploadRing::send(Slot& slot) {
  {
    std::unique_lock lock(mutex_);
    task_done_.wait(lock, [&] { return slot.unfinished == 0; });
    if (slot.error) std::rethrow_exception(slot.error);
  }
  memory_.wait();
  for (Slot& other : slots_)
    if (other.state == State::sent) {
      other.state = State::open;
      other.used = other.task_count = 0;
    }
  for (const auto& launch : slot.launches) launch();
  slot.launches.clear();
  slot.state = State::sent;
}

void UploadRing::send_oldest() {
  send(slots_[oldest_]);
  oldest_ = (oldest_ + 1) % slots_.size();
}

void UploadRing::next_slot() {
  slots_[current_].state = State::closed;
  current_ = (current_ + 1) % slots_.size();
  while (slots_[current_].state != State::open) send_oldest();
}

void UploadRing::finish() {
  slots_[current_].state = State::closed;
  while (slots_[oldest_].state == State::closed) send_oldest();
  memory_.wait();
  for (Slot& slot : slots_) slot.state = State::open;
  for (Slot& slot : slots_) slot.used = slot.task_count = 0;
  oldest_ = current_;
}

}  // namespace fourfold::backend::cuda
