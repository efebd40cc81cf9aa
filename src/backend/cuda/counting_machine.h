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

namespace fourfold::backend::cuda {

class CountingMemory final : public kernels::Memory {
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
class CountingMachine final : public kernels::Machine {
 public:
  explicit CountingMachine(const kernels::Machine& machine) : machine_(machine) {}
  CountingMemory& memory() override { return memory_; }
  std::string description() const override { return machine_.description(); }
  const plan::ArchFacts& arch() const override { return machine_.arch(); }
  int sm_count() const override { return machine_.sm_count(); }
  const std::vector<plan::RowFacts>& rows(kernels::RowKind kind) const override {
    return machine_.rows(kind);
  }
  void route_table(const moe_route::RouteParams&) override { launched("route_table"); }
  void route_choose(const moe_route::RouteParams&) override { launched("route_choose"); }
  void route_scan(const moe_route::RouteParams&) override { launched("route_scan"); }
  void route_place(const moe_route::RouteParams&) override { launched("route_place"); }
  void stage_tokens(const moe_tokens::StageParams&) override { launched("stage_tokens"); }
  void quantize_tokens(const moe_tokens::QuantizeParams&) override { launched("quantize_tokens"); }
  void gemm(kernels::RowHandle row, const moe::GemmParams&) override { launched_row(row); }
  void few_gate_up(kernels::RowHandle row, const moe_few::FewParams&, const moe::GemmParams&) override {
    launched_row(row);
  }
  void few_down(kernels::RowHandle row, const moe_few::FewParams&, const moe::GemmParams&) override {
    launched_row(row);
  }
  void combine(const moe_combine::CombineParams&, bool) override { launched("combine"); }
  void group_tiles(const moe_group::TileParams&) override { launched("group_tiles"); }
  void group_scatter(const moe_group::ScatterParams&) override { launched("group_scatter"); }
  void pack(const record::PackJob&, bool) override { launched("pack"); }
  void pack_dense(const record::DenseJob&) override { launched("pack_dense"); }
  void launch(kernels::RowHandle row, int, const void*, std::size_t) override { launched_row(row); }
  std::unique_ptr<kernels::Recording> record(const std::function<void()>&) override { return nullptr; }
  void replay(kernels::Recording&) override {}

 private:
  void launched_row(kernels::RowHandle row) {
    launched(machine_.rows(row.kind)[static_cast<std::size_t>(row.index)].row);
  }

  const kernels::Machine& machine_;
  CountingMemory memory_;
};

}  // namespace fourfold::backend::cuda
