// FP4 activations of routed experts on the simulated GPU, held against the reference backend so closely that
// other activations would be noticed; and what is refused.
#include <deque>
#include <map>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load/layers.h"
#include "backend/cuda/load/record_cache.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::Role;
using checkpoint::expect_error;
using checkpoint::TempFolder;

constexpr backend::Capacity kOneSequence{
    .page_count = 4, .page_tokens = 64, .state_slot_count = 1, .row_count = 128};

// A program whose mixers add nothing. The rows that the experts of its first layer read are then those of the
// embedding, normed, the same numbers on every backend.
class WithoutMixers {
 public:
  WithoutMixers(const Loaded& model, Activations activations) : program_(model.program(activations)) {
    for (backend::MatrixUse& use : program_.matrices) {
      const checkpoint::Matrix& stored = *use.matrix;
      if (stored.name.find("o_proj") == std::string_view::npos &&
          stored.name.find("out_proj") == std::string_view::npos)
        continue;
      const auto& zeros = zeros_.emplace_back(static_cast<std::size_t>(stored.rows * stored.columns));
      use.matrix = &matrices_.emplace_back(
          checkpoint::Matrix{stored.name, stored.rows, stored.columns, checkpoint::F32Storage{zeros}, {}});
    }
  }
  const backend::Program& program() const { return program_; }

 private:
  backend::Program program_;
  std::deque<std::vector<float>> zeros_;
  std::deque<checkpoint::Matrix> matrices_;
};

// What the first layer makes of these tokens, a row each.
std::vector<float> first_layer(backend::Prepared& prepared, const std::vector<std::int32_t>& tokens,
                               Role role) {
  const std::vector<std::int32_t> pages{0, 1, 2, 3}, asked{static_cast<std::int32_t>(tokens.size()) - 1};
  const backend::SequenceRows rows{
      .row_count = static_cast<std::int32_t>(tokens.size()), .page_count = 4, .role = role};
  std::vector<float> logits(static_cast<std::size_t>(prepared.program().vocab_size));
  prepared.run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
  const backend::ValueId out = backend::cuda::read_layers(prepared.program()).main.layers.front().out;
  const auto values = prepared.value(out);
  return {values.begin(), values.end()};
}

// The share of rows that differ by more than rounding to bf16 does. A slot's result and the shared expert's
// are stored in bf16, each number off by at most 2^-9 of itself: so is a row, unless they cancel.
constexpr double kRowBound = 0x1p-9;
double share_beyond(const Golden& golden, Activations ours, Activations theirs, Role role) {
  auto tokens = golden.ids("long.input_ids");
  tokens.resize(role == Role::prefill ? 100 : 8);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const WithoutMixers mine(golden, ours), other(golden, theirs);
  const auto gpu =
      backend::make_gpu_backend(*machine, {.keep_values = true})->prepare(mine.program(), kOneSequence);
  const auto reference = backend::ReferenceBackend().prepare(other.program(), kOneSequence);
  const auto found = first_layer(*gpu, tokens, role), wanted = first_layer(*reference, tokens, role);
  EXPECT_EQ(found.size(), wanted.size());
  const std::size_t columns = wanted.size() / tokens.size();
  double beyond = 0;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    double off = 0, all = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      off += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
      all += std::pow(static_cast<double>(wanted[i]), 2);
    }
    if (!(std::sqrt(off) <= kRowBound * std::sqrt(all))) ++beyond;
  }
  return beyond / static_cast<double>(tokens.size());
}

// A row beyond it has an activation so near to a boundary between two codes that sums in another order round
// it the other way: one row in ten is allowed, where one in a hundred is expected.
TEST(Fp4Activations, AreRoundedAsTheReferenceRoundsThem) {
  const Golden golden("modelopt");
  for (const Activations activations : {Activations::w4a4, Activations::w4a4_prefill})
    for (const Role role : {Role::prefill, Role::decode})
      EXPECT_LE(share_beyond(golden, activations, activations, role), 0.1)
          << static_cast<int>(activations) << " " << static_cast<int>(role);
}

// The same bound where something else is run than is claimed.
TEST(Fp4Activations, OtherActivationsAreNoticed) {
  const Golden golden("modelopt");
  EXPECT_GE(share_beyond(golden, Activations::w4a16, Activations::w4a4, Role::prefill), 0.9);
  EXPECT_GE(share_beyond(golden, Activations::w4a4, Activations::w4a16, Role::decode), 0.9);
  // Generated rows are 16-bit where prompts alone are quantised.
  EXPECT_GE(share_beyond(golden, Activations::w4a4_prefill, Activations::w4a4, Role::decode), 0.9);
  EXPECT_LE(share_beyond(golden, Activations::w4a4_prefill, Activations::w4a16, Role::decode), 0.1);
}

// Every launch of a prompt and of generated rows: prompts run FP4 rows, one token or sixty-four; generated
// rows read the same records in 16 bits.
TEST(Fp4Activations, PromptsRunFp4RowsAlone) {
  const Golden golden("modelopt");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared = backend::make_gpu_backend(*machine, {.graphs = false})
                            ->prepare(golden.program(Activations::w4a4_prefill), kOneSequence);
  const std::vector<std::int32_t> pages{0, 1, 2, 3}, asked{0};
  std::vector<float> logits(static_cast<std::size_t>(golden.config.vocab_size));
  std::int64_t position = 0;
  // Launches of experts by path.
  const auto run = [&](std::int32_t count, Role role) {
    std::map<std::string, int> paths;
    machine->listen([&](std::string_view kernel) {
      if (!kernel.starts_with("moe_") || kernel.find(" nvfp4") == std::string_view::npos) return;
      const std::size_t end = kernel.rfind(' '), begin = kernel.rfind(' ', end - 1) + 1;
      ++paths[std::string(kernel.substr(begin, end - begin))];
    });
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), 5);
    const backend::SequenceRows rows{.row_count = count, .position = position, .page_count = 4, .role = role};
    prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
    position += count;
    return paths;
  };
  using Paths = std::map<std::string, int>;
  const int launches = 2 * static_cast<int>(golden.config.layers.size());
  for (const std::int32_t count : {64, 20, 1})
    EXPECT_EQ(run(count, Role::prefill), (Paths{{"w4a4", launches}})) << count;
  for (const std::int32_t count : {1, 3})
    EXPECT_EQ(run(count, Role::decode), (Paths{{"w4a16-fp4-mma", launches}})) << count;
}

// Copies of the two orders lie side by side, and neither is taken for the other.
TEST(Fp4Activations, HaveAPackedCopyOfTheirOwn) {
  const Golden golden("modelopt");
  const TempFolder folder;
  backend::LoadReport report;
  const auto layer = [&](Activations activations) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device);
    const auto prepared =
        backend::make_gpu_backend(
            *machine,
            {.keep_values = true,
             .load = {.checkpoint = &golden.checkpoint, .cache = folder.path().string(), .report = &report}})
            ->prepare(golden.program(activations), kOneSequence);
    return first_layer(*prepared, {1, 2, 3}, Role::prefill);
  };
  const auto half = layer(Activations::w4a16), fp4 = layer(Activations::w4a4_prefill);
  EXPECT_FALSE(report.from_cache);
  EXPECT_NE(report.cache_file.find(".w4a4.records"), std::string::npos) << report.cache_file;
  EXPECT_EQ(layer(Activations::w4a4_prefill), fp4);
  EXPECT_TRUE(report.from_cache);
  EXPECT_EQ(layer(Activations::w4a16), half);
  EXPECT_TRUE(report.from_cache);
  using backend::cuda::cache_file;
  std::filesystem::copy_file(cache_file(folder.path(), golden.checkpoint.folder(), std::nullopt),
                             cache_file(folder.path(), golden.checkpoint.folder(), std::nullopt, true),
                             std::filesystem::copy_options::overwrite_existing);
  expect_error(Code::bad_checkpoint, {"16-bit activations", "these are FP4"},
               [&] { layer(Activations::w4a4_prefill); });
}

// Gate and up read one row of token records: scales that differ are not averaged. By name that is refused;
// where it was not asked for, the layer takes 16 bits (w4a4_prefill in the program).
TEST(Fp4Activations, ScalesOfGateAndUpMustBeTheSame) {
  const Golden golden("modelopt");
  backend::Program program = golden.program(Activations::w4a4);
  const backend::ExpertMatrices& expert = program.expert_sets.front().experts[3];
  backend::MatrixUse& up = program.matrices[static_cast<std::size_t>(expert.up.index)];
  checkpoint::Matrix other = *up.matrix;
  auto& storage = std::get<checkpoint::Nvfp4Storage>(other.storage);
  storage.input_scale = Nvfp4InputScale{2 * storage.input_scale->scale, storage.input_scale->inverse / 2};
  const std::string gate(program.matrix(expert.gate).matrix->name);
  up.matrix = &other;
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepare = [&] { backend::make_gpu_backend(*machine, {})->prepare(program, kOneSequence); };
  expect_error(Code::unsupported_op, {gate, "calibrated alike"}, prepare);
  up.input = backend::InputFormat::bf16;
  expect_error(Code::unsupported_op, {std::string(other.name), "16-bit", "FP4"}, prepare);
}

// The reference backend, too, has two arithmetics then: prompts do not go on from generated rows.
TEST(Fp4Activations, RolesDoNotAgreeWherePromptsAloneAreQuantised) {
  const Golden golden("modelopt");
  for (const Activations activations : {Activations::w4a16, Activations::w4a4, Activations::w4a4_prefill})
    EXPECT_EQ(golden.prepare(activations, kOneSequence)->roles_agree(),
              activations != Activations::w4a4_prefill);
}

}  // namespace
}  // namespace fourfold::model
