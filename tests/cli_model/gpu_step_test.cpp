// A step of the GPU backend as the machine sees it: what is recorded, and what a warm step asks of the host.
// On the simulator everywhere, and on a GPU where there is one.
#include <numeric>

#include "backend/cuda/cuda.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/sampling/sampling_params.h"
#include "tests/model/support.h"

namespace fourfold::cli {
namespace {

using backend::Role;
using model::Activations;

constexpr backend::Capacity kOneSequence{
    .page_count = 4, .page_tokens = 64, .state_slot_count = 1, .row_count = 64};

class GpuStep : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("sim")) {
      simulated_ = kernels::make_sim_machine(device_);
      return;
    }
    if (const std::string why = kernels::why_no_gpu(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
    gpu_ = kernels::open_gpu(0);
  }
  kernels::Machine& machine() { return gpu_ ? gpu_->machine() : *simulated_; }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> simulated_;
  std::unique_ptr<kernels::Gpu> gpu_;
};
INSTANTIATE_TEST_SUITE_P(Machines, GpuStep, testing::Values("sim", "cuda"));

// One sequence, its answer chosen where the logits are.
class Answer {
 public:
  explicit Answer(backend::Prepared& prepared) : prepared_(prepared), pages_(4) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }
  void prompt(const std::vector<std::int32_t>& tokens) { run(tokens, Role::prefill); }
  void next() { run({tokens_.back()}, Role::decode); }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  void run(const std::vector<std::int32_t>& tokens, Role role) {
    const auto count = static_cast<std::int32_t>(tokens.size()), asked = count - 1;
    const backend::SequenceRows rows{count, position_, 0, 0, 4, role, 0};
    std::int32_t chosen = -1;
    const backend::Choice greedy;
    ASSERT_TRUE(prepared_.run_sampled(backend::Pass::main, {tokens, {&rows, 1}, pages_, {&asked, 1}, {}},
                                      {prepared_.program().vocab_size, {&greedy, 1}}, {{&chosen, 1}, {}}));
    position_ += count;
    tokens_.push_back(chosen);
  }
  backend::Prepared& prepared_;
  std::vector<std::int32_t> pages_, tokens_;
  std::int64_t position_ = 0;
};

TEST_P(GpuStep, WarmAllocatesNothingAndWaitsOnce) {
  const model::Golden golden("modelopt");  // bf16, with NVFP4 experts: the form with the fewest kernels
  std::vector<backend::StepDecision> decisions;
  const auto prepared =
      backend::make_gpu_backend(
          machine(), {.on_new_shape = [&](const auto& decision) { decisions.push_back(decision); }})
          ->prepare(golden.program(Activations::w4a16), kOneSequence);
  const auto eager = backend::make_gpu_backend(machine(), {.graphs = false})
                         ->prepare(golden.program(Activations::w4a16), kOneSequence);
  const std::vector<std::int32_t> prompt{5, 17, 99, 4, 250};
  Answer recorded(*prepared), launched(*eager);
  recorded.prompt(prompt), launched.prompt(prompt);
  // A shape is prepared, recorded, replayed; which of two buffers it leaves its hidden rows in alternates.
  for (int step = 0; step < 4; ++step) recorded.next(), launched.next();
  for (int step = 0; step < 3; ++step) {
    const kernels::MemoryCounts before = machine().memory().counts();
    const std::int64_t launches = machine().launch_count();
    recorded.next();
    // The batch's tables there, the token back.
    EXPECT_EQ(machine().memory().counts() - before,
              (kernels::MemoryCounts{.waits = 1, .to_device = 1, .from_device = 1}))
        << step;
    EXPECT_EQ(machine().launch_count(), launches) << step;
    launched.next();
  }
  EXPECT_EQ(recorded.tokens(), launched.tokens());

  ASSERT_EQ(decisions.size(), 2u) << "a prompt, and a generated row";
  EXPECT_FALSE(decisions[0].is_recorded);
  const backend::StepDecision& step = decisions[1];
  EXPECT_TRUE(step.is_recorded);
  int layers = 0;
  for (const backend::StepPart& part : step.parts) {
    layers += part.layer_count;
    const bool is_delta = std::any_of(part.kernels.begin(), part.kernels.end(), [](const std::string& name) {
      return name.find("delta_decode") != std::string::npos;
    });
    if (is_delta) {
      EXPECT_EQ(part.kernels.size(), 6u) << step.text();
    }
  }
  EXPECT_EQ(layers, 4) << step.text();
  EXPECT_NE(step.text().find("1 generated row of 1 sequence"), std::string::npos) << step.text();
}

// Whatever is no kernel is refused by name, and the machine goes on.
TEST_P(GpuStep, RecordsKernelsAlone) {
  kernels::Memory& memory = machine().memory();
  kernels::Arena arena(memory);
  auto* device = arena.take<std::int32_t>(64, "numbers");
  auto* host = static_cast<std::int32_t*>(memory.allocate_host(256));
  std::fill_n(host, 64, 3);
  const std::vector<std::pair<const char*, std::function<void()>>> others{
      {"an allocation while", [&] { memory.allocate(256, "more"); }},
      {"a release of memory", [&] { memory.release(device); }},
      {"an allocation of page-locked memory", [&] { memory.allocate_host(256); }},
      {"a write", [&] { memory.write(device, host, 256); }},
      {"a read", [&] { memory.read(host, device, 256); }},
      {"a copy to the device", [&] { memory.send(device, host, 256); }},
      {"a copy on the device", [&] { memory.copy(device, device + 32, 128); }},
      {"a clear", [&] { memory.clear(device, 256); }},
      {"a wait", [&] { memory.wait(); }},
  };
  for (const auto& [what, call] : others)
    checkpoint::expect_error(Code::internal, {what, "a recorded step holds kernels alone"},
                             [&] { machine().record(call); });

  // A recording runs nothing; a replay does, with the arguments of then and the memory of now.
  const auto table = arena.upload(std::vector<std::uint16_t>(2 * 64, 0x3F80), "table");
  auto* out = arena.take<float>(2 * 64, "rows");
  memory.clear(out, 2 * 64 * sizeof(float));
  const auto tokens = arena.upload(std::vector<std::int32_t>{1, 0}, "tokens");
  const kernels::RowHandle row = machine().find(kernels::RowKind::step, "embed bf16");
  ASSERT_TRUE(row.found());
  sampling::EmbedParams params{table, tokens, out, 2, 64};
  const auto recording = machine().record([&] {
    machine().launch(row, sampling::embed_blocks(params), params);
    machine().launch(row, sampling::embed_blocks(params), params);
  });
  params.out = nullptr;
  EXPECT_EQ(recording->kernel_count(), 2);
  std::vector<float> rows(2 * 64, -1.0f);
  memory.read(rows.data(), out, rows.size() * sizeof(float));
  EXPECT_EQ(rows, std::vector<float>(2 * 64, 0.0f));
  machine().replay(*recording);
  memory.read(rows.data(), out, rows.size() * sizeof(float));
  EXPECT_EQ(rows, std::vector<float>(2 * 64, 1.0f));
  memory.release_host(host);
}

}  // namespace
}  // namespace fourfold::cli
