#include "kernels/launch/sim_machine.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "kernels/device/sim/cta.h"
#include "kernels/launch/sim_parts.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/moe_group/moe_group.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/moe_tokens/moe_tokens.h"
#include "kernels/record/pack_dense_kernel.h"
#include "kernels/record/pack_kernel.h"

namespace fourfold::kernels {
namespace {

// Built once: the facts of a hundred rows are strings.
const SimRows& shared_rows() {
  static const SimRows rows = [] {
    SimRows all;
    add_sim_part<SimPart::stream_nvfp4>(all);
    add_sim_part<SimPart::stream_mxfp4>(all);
    add_sim_part<SimPart::stream_fp4>(all);
    add_sim_part<SimPart::tile_mma_nvfp4>(all);
    add_sim_part<SimPart::tile_mma_mxfp4>(all);
    add_sim_part<SimPart::tile_fp4>(all);
    add_sim_part<SimPart::stream_bf16>(all);
    add_sim_part<SimPart::stream_fp8>(all);
    add_sim_part<SimPart::tile_mma_bf16>(all);
    add_sim_part<SimPart::tile_mma_fp8>(all);
    add_sim_part<SimPart::step_dense>(all);
    add_sim_part<SimPart::step_delta>(all);
    add_sim_part<SimPart::step_attention>(all);
    add_sim_part<SimPart::step_sampling>(all);
    add_sim_part<SimPart::step_all_reduce>(all);
    return all;
  }();
  return rows;
}
const SimRows& hopper_rows() {
  static const SimRows rows = [] {
    SimRows all = shared_rows();
    add_sim_part<SimPart::step_hopper>(all);
    add_sim_part<SimPart::tile_wgmma_nvfp4>(all);
    add_sim_part<SimPart::tile_wgmma_mxfp4>(all);
    add_sim_part<SimPart::tile_wgmma_bf16>(all);
    add_sim_part<SimPart::tile_wgmma_fp8>(all);
    return all;
  }();
  return rows;
}

template <class Row>
std::vector<plan::RowFacts> facts_of(const std::vector<Row>& rows) {
  std::vector<plan::RowFacts> facts;
  for (const Row& row : rows) facts.push_back(row.facts);
  return facts;
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

const SimRows& rows_of(const plan::ArchFacts& arch) { return arch.has_wgmma ? hopper_rows() : shared_rows(); }

SimRows without(SimRows rows, const std::vector<Machine::RefusedRow>& refused) {
  const auto leave_out = [&](auto& of_kind) {
    std::erase_if(of_kind, [&](const auto& row) {
      return std::ranges::any_of(refused, [&](const auto& each) { return each.row == row.facts.row; });
    });
  };
  leave_out(rows.gemm), leave_out(rows.few_gate_up), leave_out(rows.few_down), leave_out(rows.step);
  return rows;
}

class SimMachine final : public Machine {
 public:
  SimMachine(sim::Device& device, const SimMachineOptions& options)
      : memory_(device, options.memory_bytes),
        arch_(options.arch),
        refused_(options.refused),
        fewer_rows_(refused_.empty() ? SimRows{} : without(rows_of(*options.arch), refused_)),
        rows_(refused_.empty() ? rows_of(*options.arch) : fewer_rows_) {
    queue_.device = &device;
    queue_.persistent_blocks = options.persistent_blocks;
    queue_.dependent = options.dependent_launch;
    queue_.chip = options.arch;
    queue_.sms = options.sms;
    gemm_facts_ = facts_of(rows_.gemm);
    gate_up_facts_ = facts_of(rows_.few_gate_up);
    down_facts_ = facts_of(rows_.few_down);
    step_facts_ = facts_of(rows_.step);
  }

  Memory& memory() override { return memory_; }
  std::string description() const override { return format("simulator, {}", arch_->name); }
  const plan::ArchFacts& arch() const override { return *arch_; }
  int sm_count() const override { return queue_.persistent_blocks; }
  const std::vector<plan::RowFacts>& rows(RowKind kind) const override {
    switch (kind) {
      case RowKind::gemm: return gemm_facts_;
      case RowKind::few_gate_up: return gate_up_facts_;
      case RowKind::few_down: return down_facts_;
      case RowKind::step: break;
    }
    return step_facts_;
  }

  std::vector<RefusedRow> refused_rows() const override { return refused_; }

  void route_table(const moe_route::RouteParams& params) override {
    run("route_table", 1, moe_route::table_threads(params.tokens, params.experts),
        sizeof(moe_route::TableStorage),
        [params](device::SimCta cta) { moe_route::route_table(cta, params); });
  }
  void route_choose(const moe_route::RouteParams& params) override {
    const int staging = moe_tokens::stage_blocks(params.stage, 2);
    run("route_choose", chunks(params) + staging, moe_route::kChunkThreads, sizeof(moe_route::ChunkStorage),
        [params](device::SimCta cta) { moe_route::route_choose(cta, params); });
  }
  void route_scan(const moe_route::RouteParams& params) override {
    const int blocks = (params.experts + moe_route::kScanExperts - 1) / moe_route::kScanExperts;
    run("route_scan", blocks, moe_route::kSmallThreads, sizeof(moe_route::ScanStorage),
        [params](device::SimCta cta) { moe_route::route_scan(cta, params); });
  }
  void route_place(const moe_route::RouteParams& params) override {
    run("route_place", chunks(params), moe_route::kChunkThreads, sizeof(moe_route::ChunkStorage),
        [params](device::SimCta cta) { moe_route::route_place(cta, params); });
  }
  void stage_tokens(const moe_tokens::StageParams& params) override {
    run("stage_tokens", 2, moe_tokens::kThreads, 0,
        [params](device::SimCta cta) { moe_tokens::stage_tokens(cta, params); });
  }
  void quantize_tokens(const moe_tokens::QuantizeParams& params) override {
    run("quantize_tokens", 2, moe_tokens::kThreads, 0,
        [params](device::SimCta cta) { moe_tokens::quantize_tokens(cta, params); });
  }
  void gemm(RowHandle row, const moe::GemmParams& params) override {
    const SimGemmRow& entry = rows_.gemm[static_cast<std::size_t>(row.index)];
    start(entry.facts.row,
          [this, &entry, params] { entry.launch(queue_, queue_.persistent_blocks, params); });
  }
  void few_gate_up(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) override {
    const SimFewRow& entry = rows_.few_gate_up[static_cast<std::size_t>(row.index)];
    const int blocks = std::min(queue_.persistent_blocks, few.tokens * few.top_k * params.strips);
    start(entry.facts.row,
          [this, &entry, blocks, few, params] { entry.launch(queue_, blocks, few, params); });
  }
  void few_down(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) override {
    const SimFewRow& entry = rows_.few_down[static_cast<std::size_t>(row.index)];
    start(entry.facts.row, [this, &entry, few, params] {
      entry.launch(queue_, params.out_columns / entry.facts.m, few, params);
    });
  }
  void combine(const moe_combine::CombineParams& params, bool rows_are_f32) override {
    if (params.tokens == 0) return;
    run("combine", params.tokens * moe_combine::blocks_per_token(params.columns), moe_combine::kThreads, 0,
        [params, rows_are_f32](device::SimCta cta) {
          if (rows_are_f32)
            moe_combine::combine<float>(cta, params);
          else
            moe_combine::combine<std::uint16_t>(cta, params);
        });
  }
  void group_tiles(const moe_group::TileParams& params) override {
    run("group_tiles", moe_group::tile_blocks(params, queue_.persistent_blocks), moe_group::kTileThreads,
        sizeof(moe_group::TileStorage),
        [params](device::SimCta cta) { moe_group::group_tiles(cta, params); });
  }
  void group_scatter(const moe_group::ScatterParams& params) override {
    run("group_scatter", 2, moe_group::kScatterThreads, 0,
        [params](device::SimCta cta) { moe_group::group_scatter(cta, params); });
  }
  void pack(const record::PackJob& job, bool mxfp4) override {
    run("pack", 2, record::kPackThreads, 0, [job, mxfp4](device::SimCta cta) {
      if (mxfp4)
        record::pack_kernel<record::Mxfp4>(cta, job);
      else
        record::pack_kernel<record::Nvfp4>(cta, job);
    });
  }
  void pack_dense(const record::DenseJob& job) override {
    record::require_for_device(job);
    run("pack_dense", 2, record::kPackDenseThreads, 0,
        [job](device::SimCta cta) { record::pack_dense_kernel(cta, job); });
  }
  void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) override {
    const SimStepRow& entry = rows_.step[static_cast<std::size_t>(row.index)];
    check(row.kind == RowKind::step && params_bytes == entry.params_bytes, "a step row gets its own params",
          entry.facts.row, params_bytes, entry.params_bytes);
    if (blocks <= 0) return;
    const auto* bytes = static_cast<const unsigned char*>(params);
    start(entry.facts.row, [this, &entry, blocks, copy = std::vector(bytes, bytes + params_bytes)] {
      entry.launch(queue_, blocks, copy.data());
    });
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
  static int chunks(const moe_route::RouteParams& params) { return moe_route::chunk_count(params.tokens); }
  // Runs a launch, or keeps it where a recording is made.
  template <class Launch>
  void start(std::string_view kernel, Launch launch) {
    launched(kernel);
    if (tape_ != nullptr)
      tape_->push_back(std::move(launch));
    else
      launch();
  }
  template <class Body>
  void run(const char* name, int blocks, int threads, std::size_t shared_bytes, Body body) {
    start(name, [this, name, blocks, threads, shared_bytes, body] {
      queue_.last = queue_.device->launch(
          config_of(queue_, name, blocks, threads, shared_bytes, arch_->smem_bytes_per_block, 0),
          [body](sim::Lane& lane) { body(device::SimCta(lane)); });
    });
  }

  using Tape = std::vector<std::function<void()>>;
  Tape* tape_ = nullptr;  // where launches go while they are recorded
  SimMemory memory_;
  SimQueue queue_;
  const plan::ArchFacts* arch_;
  std::vector<RefusedRow> refused_;
  SimRows fewer_rows_;
  const SimRows& rows_;
  std::vector<plan::RowFacts> gemm_facts_, gate_up_facts_, down_facts_, step_facts_;
};

}  // namespace

std::unique_ptr<Machine> make_sim_machine(sim::Device& device, const SimMachineOptions& options) {
  return std::make_unique<SimMachine>(device, options);
}

}  // namespace fourfold::kernels
