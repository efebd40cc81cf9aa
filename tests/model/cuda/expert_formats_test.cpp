// Routed experts in other formats than NVFP4 and bf16, from checkpoint to logits: MXFP4 and FP8 have rows of
// their own on the GPU, and the numbers are the reference's.
#include <map>
#include <set>

#include "base/error.h"
#include "tests/model/cuda/first_layer.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using checkpoint::expect_error;
using checkpoint::StoredAs;
using checkpoint::TempFolder;

// A made-up model whose routed experts are stored so.
class Made {
 public:
  explicit Made(StoredAs routed) {
    checkpoint::OutputFolder out(folder());
    checkpoint::RandomModelOptions options;
    options.shape = checkpoint::find_shape("tiny");
    options.scheme = checkpoint::scheme_named("mxfp4");
    options.scheme.routed = routed;
    options.seed = 1;
    checkpoint::write_random_model(out, options, {0, 1});
    out.publish();
    loaded_.emplace(folder());
  }
  std::filesystem::path folder() const { return temp_.path() / "model"; }
  const Loaded& operator*() const { return *loaded_; }
  Loaded& operator*() { return *loaded_; }

 private:
  TempFolder temp_;
  std::optional<Loaded> loaded_;
};

Rows rows_of(Role role) {
  Rows rows{role, std::vector<std::int32_t>(role == Role::prefill ? 100 : 8)};
  for (std::size_t i = 0; i < rows.tokens.size(); ++i)
    rows.tokens[i] = static_cast<std::int32_t>(13 * i % 600);
  return rows;
}

class ExpertFormats : public testing::TestWithParam<StoredAs> {};
INSTANTIATE_TEST_SUITE_P(All, ExpertFormats, testing::Values(StoredAs::mxfp4, StoredAs::fp8));

TEST_P(ExpertFormats, GiveTheReferencesNumbers) {
  const Made made(GetParam());
  const Changed program(*made, Activations::w4a16, kMixers);
  for (const Role role : {Role::prefill, Role::decode})
    EXPECT_EQ(share_beyond(program, program, rows_of(role)), 0) << static_cast<int>(role);
}

// Weights that are off by a factor would be noticed.
TEST_P(ExpertFormats, OtherWeightsAreNoticed) {
  Made made(GetParam()), other(GetParam());
  auto& moe = std::get<checkpoint::MoeWeights>((*other).model.weights.layers[0].mlp);
  for (checkpoint::GatedMlp& expert : moe.experts) std::swap(expert.gate, expert.up);
  EXPECT_GE(share_beyond(Changed(*made, Activations::w4a16, kMixers),
                         Changed(*other, Activations::w4a16, kMixers), rows_of(Role::prefill)),
            0.9);
}

// Every launch of experts is a row of their format: one token, a few, a prompt.
TEST_P(ExpertFormats, RunRowsOfTheirOwn) {
  const Made made(GetParam());
  const std::string name(
      format_name(GetParam() == StoredAs::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::fp8));
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    const auto prepared = backend::make_gpu_backend(*machine, {.graphs = false})
                              ->prepare((*made).program(Activations::w4a16), kOneSequence);
    EXPECT_TRUE(prepared->notices().empty()) << prepared->notices().front();
    std::set<std::string> formats;
    // Dense matrices of prompts go through moe_gemm as well; theirs are bf16.
    machine->listen([&](std::string_view kernel) {
      if (kernel.starts_with("moe_") && kernel.find(" bf16") == std::string_view::npos)
        formats.insert(std::string(kernel.substr(kernel.rfind(' ') + 1)));
    });
    const std::vector<std::int32_t> pages{0, 1, 2, 3}, asked{0};
    std::vector<float> logits(static_cast<std::size_t>((*made).config.vocab_size));
    std::int64_t position = 0;
    for (const auto& [count, role] : {std::pair{70, Role::prefill}, {1, Role::decode}, {5, Role::decode}}) {
      formats.clear();
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), 5);
      const backend::SequenceRows rows{
          .row_count = count, .position = position, .page_count = 4, .role = role};
      prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
      position += count;
      EXPECT_EQ(formats, std::set<std::string>{name}) << arch->name << " " << count;
    }
  }
}

// A prompt cut in two and generated rows three at a time have the bits of one by one.
TEST_P(ExpertFormats, ARowHasTheSameBitsInEveryBatch) {
  const Made made(GetParam());
  const auto vocab = static_cast<std::size_t>((*made).config.vocab_size);
  const auto run = [&](const std::vector<std::pair<std::int32_t, Role>>& pieces) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device);
    const auto prepared =
        backend::make_gpu_backend(*machine, {})->prepare((*made).program(Activations::w4a16), kOneSequence);
    const std::vector<std::int32_t> pages{0, 1, 2, 3};
    std::vector<float> all;
    std::int64_t position = 0;
    for (const auto& [count, role] : pieces) {
      std::vector<std::int32_t> tokens, asked;
      for (std::int32_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<std::int32_t>(17 * (position + i) % 600));
        asked.push_back(i);
      }
      const backend::SequenceRows rows{
          .row_count = count, .position = position, .page_count = 4, .role = role};
      std::vector<float> logits(tokens.size() * vocab);
      prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
      all.insert(all.end(), logits.begin(), logits.end());
      position += count;
    }
    return all;
  };
  using enum Role;
  EXPECT_EQ(run({{64, prefill}, {9, prefill}, {3, decode}}),
            run({{73, prefill}, {1, decode}, {1, decode}, {1, decode}}));
}

// As ModelOpt's recipe by sensitivity writes them: some experts of a layer in FP8, the others in NVFP4. They
// are bf16 then, which is said with what it takes.
TEST(MixedExperts, AreBf16WithANotice) {
  Made made(StoredAs::nvfp4), other(StoredAs::fp8);
  auto& moe = std::get<checkpoint::MoeWeights>((*made).model.weights.layers[0].mlp);
  moe.experts[2] = std::get<checkpoint::MoeWeights>((*other).model.weights.layers[0].mlp).experts[2];
  std::uint64_t stored = 0, held = 0;
  for (const checkpoint::GatedMlp& expert : moe.experts)
    for (const checkpoint::Matrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
      stored += checkpoint::stored_bytes(*matrix);
      held += 2 * static_cast<std::uint64_t>(matrix->rows * matrix->columns);
    }
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared =
      backend::make_gpu_backend(*machine, {})->prepare((*made).program(Activations::w4a16), kOneSequence);
  ASSERT_EQ(prepared->notices().size(), 1u);
  const std::string notice = prepared->notices().front();
  for (const std::string& part :
       {std::string("1 layers (the first: layers.0."), std::string("in different formats ("),
        std::string("NVFP4"), std::string("FP8"),
        fourfold::format("as bf16: {} bytes instead of {}", held, stored)})
    EXPECT_NE(notice.find(part), std::string::npos) << part << " is not in " << notice;
}

// A scale that the records have no exact product for is refused by name and place.
TEST(Mxfp4Experts, ScalesBeyondTheRecordsAreRefused) {
  Made made(StoredAs::mxfp4);
  auto& moe = std::get<checkpoint::MoeWeights>((*made).model.weights.layers[1].mlp);
  checkpoint::Matrix& down = moe.experts[2].down;
  const checkpoint::LoadedMatrix loaded = checkpoint::load(down);
  const auto& view = std::get<checkpoint::Mxfp4Storage>(loaded.matrix.storage).view;
  std::vector<Ue8m0> scales(view.scales.begin(), view.scales.end());
  scales[5] = {200};
  std::vector<std::uint8_t> codes(view.codes.begin(), view.codes.end());
  down.storage = checkpoint::Mxfp4Storage{{down.rows, down.columns, codes, scales}};
  down.source = nullptr;
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  expect_error(
      Code::bad_checkpoint, {std::string(down.name), "row 2, block 1", "byte 200", "57 to 190"}, [&] {
        backend::make_gpu_backend(*machine, {})->prepare((*made).program(Activations::w4a16), kOneSequence);
      });
  // Of a block of zeros, of either sign, no scale matters.
  std::fill_n(codes.begin() + 5 * 16, 16, std::uint8_t{0x80});
  EXPECT_NO_THROW(
      backend::make_gpu_backend(*machine, {})->prepare((*made).program(Activations::w4a16), kOneSequence));
}

}  // namespace
}  // namespace fourfold::model
