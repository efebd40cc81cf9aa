// A machine that counts its launches and its memory, and does nothing else: what prepares a program on it
// learns what the same code will take of the machine it stands for.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "kernels/launch/machine.h"
#include "kernels/launch/row.h"

namespace fourfold::kernels {

class CountingMemory final : public Memory {
 public:
  std::int64_t free_bytes() override { return std::numeric_limits<std::int64_t>::max(); }
  std::int64_t total_bytes() override { return std::numeric_limits<std::int64_t>::max(); }
  // Of all allocations of this name.
  std::int64_t bytes(const std::string& name) const {
    const auto found = bytes_.find(name);
    return found == bytes_.end() ? 0 : found->second;
  }
  std::int64_t total() const { return next_ - kFirst; }

 private:
  static constexpr std::int64_t kFirst = 4096;
  static constexpr std::int64_t kGrain = 512;  // a device's allocations begin at multiples of it

  // Addresses that nobody follows.
  void* do_allocate(std::size_t bytes, std::string_view name) override {
    const std::int64_t rounded = (static_cast<std::int64_t>(bytes) + kGrain - 1) / kGrain * kGrain;
    bytes_[std::string(name)] += rounded;
    void* at = reinterpret_cast<void*>(static_cast<std::uintptr_t>(next_));
    next_ += rounded;
    return at;
  }
  void do_release(void*) override {}
  void* do_allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  void do_release_host(void* pointer) override { ::operator delete(pointer); }
  void do_write(void*, const void*, std::size_t) override {}
  void do_read(void*, const void*, std::size_t) override {
    fail(Code::internal, "nothing can be read from memory that only counts");
  }
  void do_send(void*, const void*, std::size_t) override {}
  void do_copy(void*, const void*, std::size_t) override {}
  void do_clear(void*, std::size_t) override {}
  void do_wait() override {}
  void do_forget(void*, std::size_t) override {}

  std::map<std::string, std::int64_t> bytes_;
  std::int64_t next_ = kFirst;
};

// Rows, architecture and size are those of the machine it stands for.
class CountingMachine : public Machine {
 public:
  explicit CountingMachine(const Machine& machine) : machine_(machine) {}
  CountingMemory& memory() override { return memory_; }
  std::string description() const override { return machine_.description(); }
  const plan::ArchFacts& arch() const override { return machine_.arch(); }
  int sm_count() const override { return machine_.sm_count(); }
  const std::vector<plan::RowFacts>& rows(RowKind kind) const override { return machine_.rows(kind); }
  int walkers(RowHandle row, int blocks_per_sm) const override {
    return machine_.walkers(row, blocks_per_sm);
  }
  void launch(RowHandle row, int blocks, const void*, std::size_t) override {
    if (blocks > 0) launched(told_name(row.kind, facts(row)));
  }
  std::unique_ptr<Recording> record(const std::function<void()>&) override { return nullptr; }
  void replay(Recording&) override {}

 private:
  const Machine& machine_;
  CountingMemory memory_;
};

}  // namespace fourfold::kernels
