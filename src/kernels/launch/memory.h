// A machine's memory. What is asked of it is counted, and refused while launches are recorded: a recorded
// step holds kernels and nothing else, on every machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace fourfold::kernels {

// What was asked so far. A warm step allocates nothing and waits once, for its tokens.
struct MemoryCounts {
  std::int64_t allocations = 0;  // and releases, of the device and of page-locked memory
  std::int64_t waits = 0;        // of the host for everything launched
  std::int64_t to_device = 0;    // copies: writes and sends
  std::int64_t from_device = 0;
  std::int64_t on_device = 0;  // copies and clears
  std::int64_t bytes = 0;      // held on the device now

  MemoryCounts operator-(const MemoryCounts& before) const {
    return {allocations - before.allocations, waits - before.waits,         to_device - before.to_device,
            from_device - before.from_device, on_device - before.on_device, bytes - before.bytes};
  }
  bool operator==(const MemoryCounts&) const = default;
};

class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::int64_t free_bytes() = 0;   // as of now
  virtual std::int64_t total_bytes() = 0;  // of the device

  void* allocate(std::size_t bytes, std::string_view name) {
    count(counts_.allocations, "an allocation");
    void* pointer = do_allocate(bytes, name);
    counts_.bytes += static_cast<std::int64_t>(bytes);
    held_[pointer] = static_cast<std::int64_t>(bytes);
    return pointer;
  }
  void release(void* pointer) {
    count(counts_.allocations, "a release of memory");
    if (const auto found = held_.find(pointer); found != held_.end()) {
      counts_.bytes -= found->second;
      held_.erase(found);
    }
    do_release(pointer);
  }
  // Page-locked memory of the host.
  void* allocate_host(std::size_t bytes) {
    count(counts_.allocations, "an allocation of page-locked memory");
    return do_allocate_host(bytes);
  }
  void release_host(void* pointer) {
    count(counts_.allocations, "a release of page-locked memory");
    do_release_host(pointer);
  }
  // Memory that the machines of other ranks reach as well: on this device, or page-locked on the host.
  enum class Place { device, host };
  void* allocate_shared(std::size_t bytes, Place place, std::string_view name) {
    count(counts_.allocations, "an allocation of memory that ranks share");
    return do_allocate_shared(bytes, place, name);
  }
  void release_shared(void* pointer, Place place) {
    count(counts_.allocations, "a release of memory that ranks share");
    do_release_shared(pointer, place);
  }
  // One word of shared memory on the host, while kernels look at it and write it.
  virtual std::uint32_t peek(const std::uint32_t* word) {
    return std::atomic_ref<const std::uint32_t>(*word).load(std::memory_order_acquire);
  }
  virtual void poke(std::uint32_t* word, std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_release);
  }
  // More of it, by a thread that kernels wait for: between a peek that found their word and a poke of its
  // own.
  virtual void read_shared(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  virtual void write_shared(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  // Waits until the bytes have been taken.
  void write(void* to, const void* from, std::size_t bytes) {
    count(counts_.to_device, "a write");
    ++counts_.waits;
    do_write(to, from, bytes);
  }
  // Waits for everything launched, then reads.
  void read(void* to, const void* from, std::size_t bytes) {
    count(counts_.from_device, "a read");
    ++counts_.waits;
    do_read(to, from, bytes);
  }
  // A copy out of page-locked memory that nobody waits for: it runs in stream order, and the bytes must stay
  // as they are until a read or a wait has returned.
  void send(void* to, const void* from_host, std::size_t bytes) {
    count(counts_.to_device, "a copy to the device");
    do_send(to, from_host, bytes);
  }
  // On the device, in stream order.
  void copy(void* to, const void* from, std::size_t bytes) {
    count(counts_.on_device, "a copy on the device");
    do_copy(to, from, bytes);
  }
  void clear(void* start, std::size_t bytes) {  // to zero
    count(counts_.on_device, "a clear");
    do_clear(start, bytes);
  }
  // Until everything launched and sent is done.
  void wait() {
    count(counts_.waits, "a wait");
    do_wait();
  }
  // Makes unwritten what a kernel must write: poison on a GPU, "never written" on the simulator.
  void forget(void* start, std::size_t bytes) {
    count(counts_.on_device, "a poisoning");
    do_forget(start, bytes);
  }

  const MemoryCounts& counts() const { return counts_; }

  // While one lives, every call above throws internal.
  class Recorded {
   public:
    explicit Recorded(Memory& memory) : memory_(memory) { memory_.is_recording_ = true; }
    ~Recorded() { memory_.is_recording_ = false; }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

   private:
    Memory& memory_;
  };

 private:
  void count(std::int64_t& counter, const char* what) {
    if (is_recording_)
      fail(Code::internal, "{} while launches are recorded: a recorded step holds kernels alone", what);
    ++counter;
  }
  virtual void* do_allocate(std::size_t bytes, std::string_view name) = 0;
  virtual void do_release(void* pointer) = 0;
  virtual void* do_allocate_host(std::size_t bytes) = 0;
  virtual void do_release_host(void* pointer) = 0;
  virtual void* do_allocate_shared(std::size_t bytes, Place place, std::string_view name) {
    return place == Place::host ? do_allocate_host(bytes) : do_allocate(bytes, name);
  }
  virtual void do_release_shared(void* pointer, Place place) {
    place == Place::host ? do_release_host(pointer) : do_release(pointer);
  }
  virtual void do_write(void* to, const void* from, std::size_t bytes) = 0;
  virtual void do_read(void* to, const void* from, std::size_t bytes) = 0;
  virtual void do_send(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual void do_copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void do_clear(void* start, std::size_t bytes) = 0;
  virtual void do_wait() = 0;
  virtual void do_forget(void* start, std::size_t bytes) = 0;

  MemoryCounts counts_;
  std::unordered_map<const void*, std::int64_t> held_;  // bytes
  bool is_recording_ = false;
};

}  // namespace fourfold::kernels
