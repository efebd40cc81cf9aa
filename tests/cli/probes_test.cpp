// The silicon probes on the simulated SM120, where the model is the machine: they must pass, and must be able
// to fail.
#include "kernels/verify/probes.h"

#include <gtest/gtest.h>

#include "kernels/verify/runner.h"

namespace fourfold::verify {
namespace {

TEST(Probes, AllPassOnTheSimulator) {
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90})
    simulator_target(*arch).use(3, [](kernels::Machine& machine) {
      const std::vector<Probe> probes = run_probes(machine, 11);
      EXPECT_EQ(probes.size(), 6u);
      for (const Probe& probe : probes) EXPECT_TRUE(probe.passed) << probe.name << ": " << probe.detail;
      EXPECT_EQ(native_refusal(probes), "");
    });
}

// A chip that reads scales from other lanes: simulated by handing the kernel other scale words than the probe
// expects.
class WrongScales final : public kernels::Machine {
 public:
  explicit WrongScales(kernels::Machine& machine) : machine_(machine) {}
  kernels::Memory& memory() override { return machine_.memory(); }
  std::string description() const override { return "a chip with other lanes"; }
  const plan::ArchFacts& arch() const override { return machine_.arch(); }
  int sm_count() const override { return machine_.sm_count(); }
  const std::vector<plan::RowFacts>& rows(kernels::RowKind kind) const override {
    return machine_.rows(kind);
  }
  void gemm(kernels::RowHandle row, const moe::GemmParams& params) override {
    // Swaps the scale words of the first two rows' lanes in the first record.
    auto* scales = const_cast<unsigned char*>(params.weights) + record::kPayloadBytes;
    std::uint32_t words[2];
    memory().read(words, scales, 8);
    const std::uint32_t swapped[2] = {words[1], words[0]};
    memory().write(scales, swapped, 8);
    machine_.gemm(row, params);
  }
  void route_table(const moe_route::RouteParams&) override {}
  void route_choose(const moe_route::RouteParams&) override {}
  void route_scan(const moe_route::RouteParams&) override {}
  void route_place(const moe_route::RouteParams&) override {}
  void stage_tokens(const moe_tokens::StageParams&) override {}
  void quantize_tokens(const moe_tokens::QuantizeParams&) override {}
  void few_gate_up(kernels::RowHandle, const moe_few::FewParams&, const moe::GemmParams&) override {}
  void few_down(kernels::RowHandle, const moe_few::FewParams&, const moe::GemmParams&) override {}
  void combine(const moe_combine::CombineParams&, bool) override {}
  void group_tiles(const moe_group::TileParams&) override {}
  void group_scatter(const moe_group::ScatterParams&) override {}
  void pack(const record::PackJob&, bool) override {}
  void pack_dense(const record::DenseJob&) override {}
  void launch(kernels::RowHandle, int, const void*, std::size_t) override {}
  std::unique_ptr<kernels::Recording> record(const std::function<void()>&) override { return nullptr; }
  void replay(kernels::Recording&) override {}

 private:
  kernels::Machine& machine_;
};

TEST(Probes, WrongScaleLanesAreFoundAndRefuseNativeRows) {
  simulator_target(plan::kSm120).use(3, [](kernels::Machine& machine) {
    WrongScales wrong(machine);
    const std::vector<Probe> probes = run_probes(wrong, 11);
    EXPECT_FALSE(probes.front().passed);
    EXPECT_NE(probes.front().detail.find("results differ"), std::string::npos);
    EXPECT_NE(native_refusal(probes).find("use W4A16"), std::string::npos);
  });
}

}  // namespace
}  // namespace fourfold::verify
