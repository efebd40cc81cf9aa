#include "kernels/launch/sim_machine.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/format.h"
#include "kernels/launch/row.h"
#include "kernels/launch/sim_rows.h"
#include "kernels/moe/paths.h"

namespace fourfold::kernels {
namespace {

// Built once: the facts of hundreds of rows are strings.
const std::vector<SimRow>& all_rows() {
  static const std::vector<SimRow> rows = sim_rows();
  return rows;
}

class SimMemory final : public Memory {
 public:
  SimMemory(sim::Device& device, std::int64_t bytes) : device_(device), bytes_(bytes) {}
  std::int64_t free_bytes() override { return bytes_; }
  std::int64_t total_bytes() override { return bytes_; }
  std::uint32_t peek(const std::uint32_t* word) override {
    std::uint32_t value = 0;
    device_.peers().read_to_host(&value, word, sizeof value);
    return value;
  }
  void poke(std::uint32_t* word, std::uint32_t value) override {
    device_.peers().write_from_host(word, &value, sizeof value);
  }
  void read_shared(void* to, const void* from, std::size_t bytes) override {
    device_.peers().read_to_host(to, from, bytes);
  }
  void write_shared(void* to, const void* from, std::size_t bytes) override {
    device_.peers().write_from_host(to, from, bytes);
  }

 private:
  void* do_allocate(std::size_t bytes, std::string_view name) override {
    return device_.allocate(bytes, name);
  }
  void do_release(void* pointer) override { device_.release(pointer); }
  void do_write(void* to, const void* from, std::size_t bytes) override {
    device_.synchronize();
    device_.write_from_host(to, from, bytes);
  }
  void do_read(void* to, const void* from, std::size_t bytes) override {
    device_.synchronize();
    device_.read_to_host(to, from, bytes);
  }
  void* do_allocate_shared(std::size_t bytes, Place, std::string_view name) override {
    return device_.peers().allocate(bytes, name);
  }
  void do_release_shared(void* pointer, Place) override { device_.peers().release(pointer); }
  void* do_allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  void do_release_host(void* pointer) override { ::operator delete(pointer); }
  void do_send(void* to, const void* from_host, std::size_t bytes) override {
    do_write(to, from_host, bytes);
  }
  void do_copy(void* to, const void* from, std::size_t bytes) override {
    std::vector<unsigned char> between(bytes);
    do_read(between.data(), from, bytes);
    do_write(to, between.data(), bytes);
  }
  void do_clear(void* start, std::size_t bytes) override {
    do_write(start, std::vector<unsigned char>(bytes).data(), bytes);
  }
  void do_wait() override { device_.synchronize(); }
  void do_forget(void* start, std::size_t bytes) override {
    device_.synchronize();
    device_.forget(start, bytes);
  }

  sim::Device& device_;
  std::int64_t bytes_;
};

// Launches with their arguments, to be run again.
class SimRecording final : public Recording {
 public:
  explicit SimRecording(std::vector<std::function<void()>> launches)
      : Recording(static_cast<int>(launches.size())), launches_(std::move(launches)) {}
  void run() const {
    for (const auto& launch : launches_) launch();
  }

 private:
  std::vector<std::function<void()>> launches_;
};

class SimMachine final : public Machine {
 public:
  SimMachine(sim::Device& device, const SimMachineOptions& options)
      : memory_(device, options.memory_bytes), arch_(options.arch), refused_(options.refused) {
    queue_.device = &device;
    queue_.persistent_blocks = options.persistent_blocks;
    queue_.dependent = options.dependent_launch;
    queue_.chip = options.arch;
    queue_.sms = options.sms;
    for (const SimRow& row : all_rows()) {
      if (row.facts.arch == plan::kSm90.name && !arch_->has_wgmma) continue;
      if (row.facts.path == moe::W8a8Mma::name && arch_->has_wgmma) continue;  // as Hopper has not
      if (refuses(row.facts)) continue;
      rows_[static_cast<std::size_t>(row.kind)].push_back(&row);
      facts_[static_cast<std::size_t>(row.kind)].push_back(row.facts);
    }
  }

  Memory& memory() override { return memory_; }
  std::string description() const override { return format("simulator, {}", arch_->name); }
  const plan::ArchFacts& arch() const override { return *arch_; }
  int sm_count() const override { return queue_.persistent_blocks; }
  const std::vector<plan::RowFacts>& rows(RowKind kind) const override {
    return facts_[static_cast<std::size_t>(kind)];
  }
  // Few, so that a simulation is quick.
  int walkers(RowHandle row, int) const override {
    return row.kind == RowKind::basic ? 2 : queue_.persistent_blocks;
  }

  std::vector<RefusedRow> refused_rows() const override { return refused_; }

  void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) override {
    const SimRow& entry = *rows_[static_cast<std::size_t>(row.kind)][static_cast<std::size_t>(row.index)];
    check(params_bytes == entry.params_bytes, "a row gets its own params", entry.facts.row, params_bytes,
          entry.params_bytes);
    if (blocks <= 0) return;
    launched(told_name(entry.kind, entry.facts));
    const auto* bytes = static_cast<const unsigned char*>(params);
    auto start = [this, &entry, blocks, copy = std::vector(bytes, bytes + params_bytes)] {
      entry.launch(queue_, blocks, copy.data());
    };
    if (tape_ != nullptr)
      tape_->push_back(std::move(start));
    else
      start();
  }
  using Machine::launch;
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override {
    const Memory::Recorded recorded(memory_);
    Tape tape;
    tape_ = &tape;
    try {
      launches();
    } catch (...) {
      tape_ = nullptr;
      throw;
    }
    tape_ = nullptr;
    return std::make_unique<SimRecording>(std::move(tape));
  }
  void replay(Recording& recording) override { static_cast<SimRecording&>(recording).run(); }

 private:
  bool refuses(const plan::RowFacts& row) {
    const auto refused = std::ranges::find(refused_, row.row, &RefusedRow::row);
    if (refused == refused_.end()) return false;
    refused->kernel = row.kernel;
    return true;
  }

  using Tape = std::vector<std::function<void()>>;
  Tape* tape_ = nullptr;  // where launches go while they are recorded
  SimMemory memory_;
  SimQueue queue_;
  const plan::ArchFacts* arch_;
  std::vector<RefusedRow> refused_;
  std::array<std::vector<const SimRow*>, kRowKinds> rows_;
  std::array<std::vector<plan::RowFacts>, kRowKinds> facts_;
};

}  // namespace

std::unique_ptr<Machine> make_sim_machine(sim::Device& device, const SimMachineOptions& options) {
  return std::make_unique<SimMachine>(device, options);
}

}  // namespace fourfold::kernels
