// FP4 activations on the simulated GPU, held against the reference backend so closely that other activations
// would be noticed; and what is refused.
#include <array>
#include <map>
#include <numeric>
#include <span>

#include "backend/cuda/load/record_cache.h"
#include "tests/model/cuda/first_layer.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using checkpoint::expect_error;
using checkpoint::TempFolder;

double share_beyond(const Golden& golden, Activations ours, Activations theirs, Role role,
                    const Changed::Which& ours_in_bf16 = {}) {
  auto tokens = golden.ids("long.input_ids");
  tokens.resize(role == Role::prefill ? 100 : 8);
  return share_beyond(Changed(golden, ours, kMixers, ours_in_bf16), Changed(golden, theirs, kMixers),
                      {role, tokens});
}

// A row beyond it has an activation so near to a boundary between two codes that sums in another order round
// it the other way: one row in twenty is allowed, where one in a hundred is expected. The second model's
// shared experts are FP4, too: without bf16 between their two GEMMs a row in nine is beyond.
TEST(Fp4Activations, AreRoundedAsTheReferenceRoundsThem) {
  for (const char* name : {"modelopt", "compressed"}) {
    const Golden golden(name);
    for (const Activations activations : {Activations::w4a4, Activations::w4a4_prefill})
      for (const Role role : {Role::prefill, Role::decode})
        EXPECT_LE(share_beyond(golden, activations, activations, role), 0.05)
            << name << " " << static_cast<int>(activations) << " " << static_cast<int>(role);
  }
}

// The same bound where something else is run than is claimed.
TEST(Fp4Activations, OtherActivationsAreNoticed) {
  const Golden golden("modelopt");
  EXPECT_GE(share_beyond(golden, Activations::w4a16, Activations::w4a4, Role::prefill), 0.9);
  EXPECT_GE(share_beyond(golden, Activations::w4a4, Activations::w4a16, Role::decode), 0.9);
  // Generated rows are 16-bit where prompts alone are quantised.
  EXPECT_GE(share_beyond(golden, Activations::w4a4_prefill, Activations::w4a4, Role::decode), 0.9);
  EXPECT_LE(share_beyond(golden, Activations::w4a4_prefill, Activations::w4a16, Role::decode), 0.1);
  // The shared expert alone in 16 bits.
  const Golden all("compressed");
  for (const Role role : {Role::prefill, Role::decode})
    EXPECT_GE(share_beyond(all, Activations::w4a4, Activations::w4a4, role, named({"shared_expert."})), 0.9);
}

// Attention without a gate, every matrix NVFP4 with an input scale, and experts that add nothing.
class AttentionModel {
 public:
  AttentionModel() {
    checkpoint::OutputFolder out(folder_.path() / "model");
    checkpoint::RandomModelOptions options;
    options.shape = checkpoint::find_shape("tiny-qwen3-moe");
    options.shape.head_dim = 64;
    options.scheme = checkpoint::scheme_named("nvfp4");
    options.seed = 1;
    checkpoint::write_random_model(out, options, {0, 1});
    out.publish();
    model_.emplace(folder_.path() / "model");
    // Query and key are one launch; the value has a scale of its own, so that their rows are quantised twice.
    auto& first = std::get<checkpoint::AttentionWeights>(model_->model.weights.layers.front().mixer);
    auto& scale = std::get<checkpoint::Nvfp4Storage>(first.value.storage).input_scale;
    scale = Nvfp4InputScale{scale->scale / 2, scale->inverse * 2};
  }
  // Every row is a sequence of one token, which attends to itself: what the output projection reads is the
  // value's row, the same numbers on every backend.
  double share_beyond(Activations ours, Activations theirs, Role role,
                      const Changed::Which& ours_in_bf16 = {}) {
    Rows rows{role,
              std::vector<std::int32_t>(role == Role::prefill ? 20 : 8),
              false,
              {.page_count = 32, .page_tokens = 64, .state_slot_count = 32, .row_count = 64}};
    std::iota(rows.tokens.begin(), rows.tokens.end(), 100);
    const auto experts = named({"experts"}), down = named({"down_proj"});
    const auto in_bf16 = [&](std::string_view name) {
      return experts(name) || (ours_in_bf16 && ours_in_bf16(name));
    };
    return model::share_beyond(Changed(*model_, ours, down, in_bf16), Changed(*model_, theirs, down, experts),
                               rows);
  }

 private:
  TempFolder folder_;
  std::optional<Loaded> model_;
};

TEST(Fp4Activations, OfAttentionAreRoundedAsTheReferenceRoundsThem) {
  AttentionModel model;
  for (const Activations activations : {Activations::w4a4, Activations::w4a4_prefill})
    for (const Role role : {Role::prefill, Role::decode})
      EXPECT_LE(model.share_beyond(activations, activations, role), 0.1)
          << static_cast<int>(activations) << " " << static_cast<int>(role);
  for (const Role role : {Role::prefill, Role::decode})
    for (const char* part : {"v_proj", "o_proj"})
      EXPECT_GE(model.share_beyond(Activations::w4a4, Activations::w4a4, role, named({part})), 0.9) << part;
  EXPECT_GE(model.share_beyond(Activations::w4a4_prefill, Activations::w4a4, Role::decode), 0.9);
}

// Every launch of a prompt and of generated rows: whatever reads NVFP4 with an input scale runs FP4 rows in a
// prompt, of one token or sixty-four; generated rows read the same records in 16 bits. Rows that ask for
// logits are the head's generated rows.
void expect_fp4_prompts(const Loaded& model, int prompt_launches, int head_launches) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared = backend::make_gpu_backend(*machine, {.graphs = false})
                            ->prepare(model.program(Activations::w4a4_prefill), kOneSequence);
  const std::vector<std::int32_t> pages{0, 1, 2, 3}, asked{0};
  std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
  std::int64_t position = 0;
  // Launches of rows for NVFP4 weights by path; the dense rows, which have none, by kernel.
  const auto run = [&](std::int32_t count, Role role) {
    std::map<std::string, int> paths;
    machine->listen([&](std::string_view kernel) {
      if (kernel.find(" nvfp4") == std::string_view::npos) return;
      const std::size_t end = kernel.rfind(" nvfp4"), begin = kernel.rfind(' ', end - 1) + 1;
      ++paths[std::string(kernel.starts_with("moe_") ? kernel.substr(begin, end - begin) : kernel)];
    });
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(count), 5);
    const backend::SequenceRows rows{.row_count = count, .position = position, .page_count = 4, .role = role};
    prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
    position += count;
    return paths;
  };
  using Paths = std::map<std::string, int>;
  Paths prompt{{"w4a4", prompt_launches}};
  if (head_launches > 0) prompt["w4a16-fp4-mma"] = head_launches;
  for (const std::int32_t count : {64, 20, 1}) EXPECT_EQ(run(count, Role::prefill), prompt) << count;
  for (const std::int32_t count : {1, 3})
    EXPECT_EQ(run(count, Role::decode), (Paths{{"w4a16-fp4-mma", prompt_launches + head_launches}})) << count;
}

TEST(Fp4Activations, PromptsRunFp4RowsAlone) {
  const Golden experts("modelopt"), attention("compressed");
  const int layers = static_cast<int>(experts.config.layers.size());
  expect_fp4_prompts(experts, 2 * layers, 0);
  // Shared experts, and one layer's attention: query, key and value have the same scales.
  expect_fp4_prompts(attention, 4 * layers + 2, 0);
  // Everything that is large: DeltaNet's wide inputs, its output, the head.
  const TempFolder folder;
  make_model(folder.path() / "model", "tiny", "nvfp4");
  expect_fp4_prompts(Loaded(folder.path() / "model"), 4 * 4 + 3 * 2 + 2, 1);
}

// A checkpoint's experts with these input scales of gate and up; all of them with one, where there is one.
void set_expert_scales(const backend::Program& program, std::span<const float> inverses) {
  for (const backend::ExpertSet& set : program.expert_sets)
    for (std::size_t i = 0; i < set.experts.size(); ++i)
      for (const backend::MatrixId id : {set.experts[i].gate, set.experts[i].up}) {
        auto& stored = const_cast<checkpoint::Matrix&>(*program.matrix(id).matrix).storage;
        const float inverse = inverses[i % inverses.size()];
        if (auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&stored))  // an MTP layer's are not
          nvfp4->input_scale = Nvfp4InputScale{1 / inverse, inverse};
      }
}

// The passes over the rows of a prompt: norms, and what quantises behind them.
struct Passes {
  std::map<std::string, int> launches;
  std::string notices;
  Passes(const Loaded& model, Activations activations, const plan::ArchFacts& arch = plan::kSm120,
         std::int32_t count = 20) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
    const auto prepared = backend::make_gpu_backend(*machine, {.graphs = false})
                              ->prepare(model.program(activations), kOneSequence);
    for (const std::string& notice : prepared->notices()) notices += notice + "\n";
    machine->listen([&](std::string_view kernel) {
      if (kernel == "norm_prompt" || kernel == "norm_fp4" || kernel.starts_with("quantize_"))
        ++launches[std::string(kernel)];
    });
    const std::vector<std::int32_t> pages{0, 1, 2, 3}, tokens(static_cast<std::size_t>(count), 5);
    std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
    const backend::SequenceRows rows{.row_count = count, .page_count = 4, .role = Role::prefill};
    prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, std::vector<std::int32_t>{0}, {}}, logits);
  }
};
using Launches = std::map<std::string, int>;

TEST(Fp4Activations, TheNormQuantisesWhereExpertsHaveOneScale) {
  const Golden golden("modelopt");
  const int layers = static_cast<int>(golden.config.layers.size());
  const backend::Program program = golden.program(Activations::w4a4_prefill);
  set_expert_scales(program, std::array{400.0f});
  for (const std::int32_t count : {64, 1}) {
    const Passes one(golden, Activations::w4a4_prefill, plan::kSm120, count);
    EXPECT_EQ(one.launches, (Launches{{"norm_fp4", layers}, {"norm_prompt", layers}})) << count;
    EXPECT_EQ(one.notices.find("input scales"), std::string::npos) << one.notices;
  }
  // Scales that differ are kept, rows quantised for each, and that is said.
  set_expert_scales(program, std::array{400.0f, 401.0f});
  const Passes two(golden, Activations::w4a4_prefill);
  EXPECT_EQ(two.launches, (Launches{{"norm_prompt", 2 * layers}, {"quantize_tokens", layers}}));
  EXPECT_NE(two.notices.find(format("{} layers (the first: ", layers)), std::string::npos) << two.notices;
  EXPECT_NE(two.notices.find("different input scales"), std::string::npos) << two.notices;
}

// As the reference rounds them, and told from 16-bit ones, with one scale as with many.
TEST(Fp4Activations, OfOneScaleAreRoundedAsTheReferenceRoundsThem) {
  const Golden golden("modelopt");
  set_expert_scales(golden.program(Activations::w4a4_prefill), std::array{400.0f});
  EXPECT_LE(share_beyond(golden, Activations::w4a4_prefill, Activations::w4a4_prefill, Role::prefill), 0.05);
  EXPECT_GE(share_beyond(golden, Activations::w4a16, Activations::w4a4_prefill, Role::prefill), 0.9);
}

// Every matrix NVFP4: what stays behind is the rows of mixers, which no norm makes.
TEST(Fp4Activations, TheNormQuantisesForDenseMatrices) {
  const TempFolder folder;
  make_model(folder.path() / "model", "tiny", "nvfp4");
  const Loaded model(folder.path() / "model");
  set_expert_scales(model.program(Activations::w4a4_prefill), std::array{400.0f});
  const int layers = static_cast<int>(model.config.layers.size());
  EXPECT_EQ(Passes(model, Activations::w4a4_prefill).launches,
            (Launches{{"norm_fp4", 2 * layers}, {"quantize_tokens", layers}}));
}

// Chips without the instruction launch what they did: no norm that quantises, nothing that quantises behind.
TEST(Fp4Activations, HopperNormsAsBefore) {
  const Golden golden("modelopt");
  const int layers = static_cast<int>(golden.config.layers.size());
  const Passes hopper(golden, Activations::w4a16, plan::kSm90);
  EXPECT_EQ(hopper.launches, (Launches{{"norm_prompt", 2 * layers}}));
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
