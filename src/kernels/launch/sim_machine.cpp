#include "kernels/launch/sim_machine.h"

#include <algorithm>
#include <limits>

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
  explicit SimMemory(sim::Device& device) : device_(device) {}
  void* allocate(std::size_t bytes, std::string_view name) override { return device_.allocate(bytes, name); }
  void release(void* pointer) override { device_.release(pointer); }
  std::int64_t free_bytes() override { return std::numeric_limits<std::int64_t>::max(); }
  void write(void* to, const void* from, std::size_t bytes) override {
    device_.synchronize();
    device_.write_from_host(to, from, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override {
    device_.synchronize();
    device_.read_to_host(to, from, bytes);
  }
  void* allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  void release_host(void* pointer) override { ::operator delete(pointer); }
  void send(void* to, const void* from_host, std::size_t bytes) override { write(to, from_host, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::vector<unsigned char> between(bytes);
    read(between.data(), from, bytes);
    write(to, between.data(), bytes);
  }
  void clear(void* start, std::size_t bytes) override {
    write(start, std::vector<unsigned char>(bytes).data(), bytes);
  }
  void wait() override { device_.synchronize(); }
  void forget(void* start, std::size_t bytes) override {
    device_.synchronize();
    device_.forget(start, bytes);
  }

 private:
  sim::Device& device_;
};

class SimMachine final : public Machine {
 public:
  SimMachine(sim::Device& device, const SimMachineOptions& options)
      : memory_(device), arch_(options.arch), rows_(options.arch->has_wgmma ? hopper_rows() : shared_rows()) {
    queue_.device = &device;
    queue_.persistent_blocks = options.persistent_blocks;
    queue_.dependent = options.dependent_launch;
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

  void route_table(const moe_route::RouteParams& params) override {
    run("route_table", 1, moe_route::kSmallThreads, sizeof(moe_route::SortStorage),
        [&](device::SimCta cta) { moe_route::route_table(cta, params); });
  }
  void route_choose(const moe_route::RouteParams& params) override {
    run("route_choose", chunks(params), moe_route::kChunkThreads, sizeof(moe_route::SortStorage),
        [&](device::SimCta cta) { moe_route::route_choose(cta, params); });
  }
  void route_scan(const moe_route::RouteParams& params) override {
    const int blocks = (params.experts + moe_route::kScanExperts - 1) / moe_route::kScanExperts;
    run("route_scan", blocks, moe_route::kSmallThreads, sizeof(moe_route::ScanStorage),
        [&](device::SimCta cta) { moe_route::route_scan(cta, params); });
  }
  void route_place(const moe_route::RouteParams& params) override {
    run("route_place", chunks(params), moe_route::kChunkThreads, sizeof(moe_route::SortStorage),
        [&](device::SimCta cta) { moe_route::route_place(cta, params); });
  }
  void stage_tokens(const moe_tokens::StageParams& params) override {
    run("stage_tokens", 2, moe_tokens::kThreads, 0,
        [&](device::SimCta cta) { moe_tokens::stage_tokens(cta, params); });
  }
  void quantize_tokens(const moe_tokens::QuantizeParams& params) override {
    run("quantize_tokens", 2, moe_tokens::kThreads, 0,
        [&](device::SimCta cta) { moe_tokens::quantize_tokens(cta, params); });
  }
  void gemm(RowHandle row, const moe::GemmParams& params) override {
    rows_.gemm[static_cast<std::size_t>(row.index)].launch(queue_, queue_.persistent_blocks, params);
  }
  void few_gate_up(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) override {
    const int strips = few.tokens * few.top_k * params.strips;
    rows_.few_gate_up[static_cast<std::size_t>(row.index)].launch(
        queue_, std::min(queue_.persistent_blocks, strips), few, params);
  }
  void few_down(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) override {
    const SimFewRow& entry = rows_.few_down[static_cast<std::size_t>(row.index)];
    entry.launch(queue_, params.out_columns / entry.facts.m, few, params);
  }
  void combine(const moe_combine::CombineParams& params, bool rows_are_f32) override {
    if (params.tokens == 0) return;
    run("combine", params.tokens * moe_combine::blocks_per_token(params.columns), moe_combine::kThreads, 0,
        [&](device::SimCta cta) {
          if (rows_are_f32)
            moe_combine::combine<float>(cta, params);
          else
            moe_combine::combine<std::uint16_t>(cta, params);
        });
  }
  void group_tiles(const moe_group::TileParams& params) override {
    run("group_tiles", moe_group::tile_blocks(params, queue_.persistent_blocks), moe_group::kTileThreads,
        sizeof(moe_group::TileStorage), [&](device::SimCta cta) { moe_group::group_tiles(cta, params); });
  }
  void group_scatter(const moe_group::ScatterParams& params) override {
    run("group_scatter", 2, moe_group::kScatterThreads, 0,
        [&](device::SimCta cta) { moe_group::group_scatter(cta, params); });
  }
  void pack(const record::PackJob& job, bool mxfp4) override {
    run("pack", 2, record::kPackThreads, 0, [&](device::SimCta cta) {
      if (mxfp4)
        record::pack_kernel<record::Mxfp4>(cta, job);
      else
        record::pack_kernel<record::Nvfp4>(cta, job);
    });
  }
  void pack_dense(const record::DenseJob& job) override {
    record::require_for_device(job);
    run("pack_dense", 2, record::kPackDenseThreads, 0,
        [&](device::SimCta cta) { record::pack_dense_kernel(cta, job); });
  }
  void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) override {
    const SimStepRow& entry = rows_.step[static_cast<std::size_t>(row.index)];
    check(row.kind == RowKind::step && params_bytes == entry.params_bytes, "a step row gets its own params",
          entry.facts.row, params_bytes, entry.params_bytes);
    if (blocks > 0) entry.launch(queue_, blocks, params);
  }
  using Machine::launch;
  std::unique_ptr<Recording> record(const std::function<void()>&) override { return nullptr; }
  void replay(Recording&) override {}

 private:
  static int chunks(const moe_route::RouteParams& params) { return moe_route::chunk_count(params.tokens); }
  template <class Body>
  void run(const char* name, int blocks, int threads, std::size_t shared_bytes, const Body& body) {
    queue_.last = queue_.device->launch(
        config_of(queue_, name, blocks, threads, shared_bytes, arch_->smem_bytes_per_block, 0),
        [&](sim::Lane& lane) { body(device::SimCta(lane)); });
  }

  SimMemory memory_;
  SimQueue queue_;
  const plan::ArchFacts* arch_;
  const SimRows& rows_;
  std::vector<plan::RowFacts> gemm_facts_, gate_up_facts_, down_facts_, step_facts_;
};

}  // namespace

std::unique_ptr<Machine> make_sim_machine(sim::Device& device, const SimMachineOptions& options) {
  return std::make_unique<SimMachine>(device, options);
}

}  // namespace fourfold::kernels
