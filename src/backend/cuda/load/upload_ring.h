// Weights on their way to the machine: page-locked slots in a ring. Reader threads fill the slots ahead while
// the machine takes the ones behind, so reading, the copy and the packing run at the same time and loading
// goes at the speed of the slowest.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

// One thread gives the work: reserve, fill, then, finish. The others are the uploads's own.
class UploadRing {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{32} << 20;
  static constexpr int kSlots = 4;
  static constexpr std::size_t kAlignment = 256;

  // Starts the readers, one a core and 16 at most. Memory is taken when first needed.
  UploadRing(kernels::Memory& memory, std::size_t slot_bytes);
  ~UploadRing();  // without finish(): what was not sent is dropped
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  std::size_t slot_bytes() const { return slot_bytes_; }
  // What is left of the slot that is being filled; next_slot() makes it all of one.
  std::size_t room() const { return slot_bytes_ - slots_[current_].used; }
  void next_slot();

  struct Place {
    std::byte* host = nullptr;
    std::size_t offset = 0;  // in its slot
  };
  // At most room(); the next reservation begins at a multiple of kAlignment.
  Place reserve(std::size_t bytes);
  // A part of the slot's filling, run by a reader. May throw; finish() or an earlier call throws it again,
  // the first of the first slot.
  void fill(std::function<void()> task);
  // What the machine does with the slot, run by the caller's thread once everything is filled, in the order
  // given over all slots.
  void then(std::function<void()> launch);
  // Everything has been sent and has arrived.
  void finish();

 private:
  enum class State { open, closed, sent };
  struct Slot {
    std::byte* memory = nullptr;
    std::size_t used = 0;
    State state = State::open;
    std::vector<std::function<void()>> launches;
    std::size_t task_count = 0;
    // Guarded by mutex_.
    std::size_t unfinished = 0;
    std::size_t failed_task = 0;
    std::exception_ptr error;
  };
  struct Task {
    Slot* slot;
    std::size_t index;
    std::function<void()> run;
  };

  void read_until_closed();
  void send(Slot& slot);
  void send_oldest();

  kernels::Memory& memory_;
  std::size_t slot_bytes_;
  std::vector<Slot> slots_;
  std::size_t current_ = 0;  // the open slot
  std::size_t oldest_ = 0;   // that was not sent
  std::mutex mutex_;
  std::condition_variable task_there_, task_done_;
  std::deque<Task> tasks_;
  bool closed_ = false;
  std::thread readers_;
};

}  // namespace fourfold::backend::cuda
