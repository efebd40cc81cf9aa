// FP8 activations (w8a8) of dense matrices on the simulated Hopper and SM120, held against the reference
// backend so closely that other activations would be noticed; which kernels run; and what is refused.
#include <algorithm>
#include <map>

#include "tests/model/cuda/first_layer.h"

namespace fourfold::model {
namespace {

using checkpoint::expect_error;

// Checkpoints with input scales, and, where they are taken away, a factor for every row.
std::unique_ptr<Golden> golden_of(bool with_scales) {
  auto golden = std::make_unique<Golden>("modelopt_mixed");
  int taken = 0;
  for (const backend::MatrixUse& use : golden->program(Activations::w8a8).matrices)
    if (auto* stored =
            std::get_if<checkpoint::Fp8Storage>(&const_cast<checkpoint::Matrix*>(use.matrix)->storage)) {
      EXPECT_TRUE(stored->input_scale) << use.matrix->name;
      if (!with_scales) stored->input_scale.reset();
      ++taken;
    }
  EXPECT_GT(taken, 0);
  return golden;
}

struct Layers {
  std::vector<float> gpu, same, other;  // the reference's with the same and with other activations
  std::size_t row_count;

  Layers(const Golden& golden, Activations ours, Activations theirs, Role role,
         const plan::ArchFacts& arch = plan::kSm90) {
    auto tokens = golden.ids("long.input_ids");
    tokens.resize(role == Role::prefill ? 100 : 8);
    row_count = tokens.size();
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
    gpu = first_layer(*backend::make_gpu_backend(*machine, {.keep_values = true})
                           ->prepare(golden.program(ours), kOneSequence),
                      tokens, role);
    same = first_layer(*golden.prepare(ours, kOneSequence), tokens, role);
    other = first_layer(*golden.prepare(theirs, kOneSequence), tokens, role);
  }
  // How far a row is from what it should be, over how far that is from what other activations give: the
  // median, because some rows' experts are so nearly level that rounding chooses another one. Not near zero,
  // because the layer's later matrices read rows that were bf16 on the way, off by up to 2^-9 of themselves:
  // beside steps of 2^-3 to 2^-4 that moves one code in 16 to 32 by a step, and the root of that is a quarter
  // to a sixth of what rounding to E4M3 costs.
  double distance_share() const {
    std::vector<double> shares;
    const std::size_t columns = same.size() / row_count;
    for (std::size_t at = 0; at < same.size(); at += columns)
      shares.push_back(distance(gpu, same, at, columns) / distance(same, other, at, columns));
    std::ranges::sort(shares);
    return shares[shares.size() / 2];
  }

 private:
  static double distance(const std::vector<float>& a, const std::vector<float>& b, std::size_t begin,
                         std::size_t count) {
    double sum = 0;
    for (std::size_t i = begin; i < begin + count; ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
    return std::sqrt(sum);
  }
};

TEST(Fp8Activations, AreRoundedAsTheReferenceRoundsThem) {
  for (const bool with_scales : {true, false}) {
    const auto held = golden_of(with_scales);
    const Golden& golden = *held;
    EXPECT_LE(Layers(golden, Activations::w8a8, Activations::w4a16, Role::prefill).distance_share(), 0.5)
        << with_scales;
    // 16-bit activations are told apart as well: one taken for the other would be at 1.
    EXPECT_LE(Layers(golden, Activations::w4a16, Activations::w8a8, Role::prefill).distance_share(), 0.5)
        << with_scales;
    EXPECT_LE(
        Layers(golden, Activations::w8a8, Activations::w4a16, Role::prefill, plan::kSm120).distance_share(),
        0.5)
        << with_scales;
  }
}

// Generated rows are bf16 with w8a8, too: bit for bit what w4a16 gives.
TEST(Fp8Activations, AreForPromptsAlone) {
  const Golden golden("modelopt_mixed");
  const Layers with(golden, Activations::w8a8, Activations::w4a16, Role::decode);
  const Layers without(golden, Activations::w4a16, Activations::w8a8, Role::decode);
  EXPECT_EQ(with.gpu, without.gpu);
  EXPECT_EQ(with.same, without.same);
  EXPECT_FALSE(golden.prepare(Activations::w8a8, kOneSequence)->roles_agree());
}

// Every launch of a prompt and of generated rows: all fp8 matrices of a prompt run FP8 x FP8, of one token as
// of a hundred, and rows are quantised by the norm where one comes before them.
void expect_fp8_prompts(const plan::ArchFacts& arch, const char* path) {
  const Golden golden("modelopt_mixed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
  const auto prepared = backend::make_gpu_backend(*machine, {.graphs = false})
                            ->prepare(golden.program(Activations::w8a8), kOneSequence);
  const std::vector<std::int32_t> pages{0, 1, 2, 3}, asked{0};
  std::vector<float> logits(static_cast<std::size_t>(golden.config.vocab_size));
  std::int64_t position = 0;
  const auto run = [&](std::int32_t count, Role role) {
    std::map<std::string, int> launches;
    machine->listen([&](std::string_view kernel) {
      if (kernel.starts_with("moe_gemm") && kernel.ends_with(" fp8"))
        ++launches[kernel.find(path) != std::string_view::npos ? "w8a8" : "another"];
      if (kernel == "quantize_rows" || kernel == "norm_prompt") ++launches[std::string(kernel)];
    });
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), 5);
    const backend::SequenceRows rows{.row_count = count, .position = position, .page_count = 4, .role = role};
    prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
    position += count;
    return launches;
  };
  for (const std::int32_t count : {64, 20, 1}) {
    const auto launches = run(count, Role::prefill);
    EXPECT_GT(launches.at("w8a8"), 0) << count;
    EXPECT_EQ(launches.count("another"), 0u) << count;
    EXPECT_EQ(launches.at("norm_prompt"), 2 * static_cast<int>(golden.config.layers.size())) << count;
    EXPECT_GT(launches.at("quantize_rows"), 0) << count;
  }
  for (const std::int32_t count : {1, 3}) EXPECT_TRUE(run(count, Role::decode).empty()) << count;
}

TEST(Fp8Activations, PromptsRunFp8RowsAlone) {
  expect_fp8_prompts(plan::kSm90, " w8a8-wgmma ");
  expect_fp8_prompts(plan::kSm120, " w8a8-mma ");
}

TEST(Fp8Activations, MatricesThatShareTheirInputMustBeCalibratedAlike) {
  const Golden golden("modelopt_mixed");
  backend::Program program = golden.program(Activations::w8a8);
  checkpoint::Matrix other;
  for (backend::MatrixUse& use : program.matrices)
    if (use.input == backend::InputFormat::fp8_prefill &&
        use.matrix->name.find("k_proj") != std::string_view::npos) {
      other = *use.matrix;
      std::get<checkpoint::Fp8Storage>(other.storage).input_scale = 0.125f;
      use.matrix = &other;
      break;
    }
  ASSERT_FALSE(other.name.empty());
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  expect_error(Code::unsupported_op, {"k_proj", "0.125", "calibrated alike"},
               [&] { backend::make_gpu_backend(*machine, {})->prepare(program, kOneSequence); });
}

// Only FP4 needs the three matrices of an MLP alike: FP8 rows are made for each matrix that reads them. Here
// gate and up are made FP8 beside a down projection that takes bf16.
TEST(Fp8Activations, OneMatrixOfAnMlpMayBeAnother) {
  const Golden golden("modelopt_mixed");
  backend::Program program = golden.program(Activations::w8a8);
  std::vector<E4m3> codes;
  std::deque<checkpoint::Matrix> made;
  for (backend::MatrixUse& use : program.matrices) {
    const checkpoint::Matrix& stored = *use.matrix;
    if (!named({"shared_expert.gate_proj", "shared_expert.up_proj"})(stored.name)) continue;
    if (codes.empty())
      for (std::int64_t i = 0; i < stored.rows * stored.columns; ++i)
        codes.push_back(E4m3{static_cast<std::uint8_t>(0x28 + i % 8 + 0x80 * (i % 3 == 0))});
    use.matrix = &made.emplace_back(
        checkpoint::Matrix{stored.name,
                           stored.rows,
                           stored.columns,
                           checkpoint::Fp8Storage{codes, checkpoint::Fp8TensorScale{0.0625f}, std::nullopt},
                           {}});
    use.input = backend::InputFormat::fp8_prefill;
  }
  ASSERT_FALSE(made.empty());
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  const std::vector<std::int32_t> tokens{1, 2, 3};
  const auto found =
      first_layer(*backend::make_gpu_backend(*machine, {.keep_values = true})->prepare(program, kOneSequence),
                  tokens, Role::prefill);
  const auto wanted =
      first_layer(*backend::ReferenceBackend().prepare(program, kOneSequence), tokens, Role::prefill);
  double off = 0, all = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    off += std::pow(double{found[i]} - double{wanted[i]}, 2);
    all += std::pow(double{wanted[i]}, 2);
  }
  EXPECT_LE(std::sqrt(off), 0x1p-4 * std::sqrt(all));  // a step of E4M3
}

}  // namespace
}  // namespace fourfold::model
