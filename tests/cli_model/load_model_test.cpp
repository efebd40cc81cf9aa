#include "cli/load_model.h"

#include <algorithm>
#include <fstream>

#include "cli/bench_load_command.h"
#include "cli/find_model.h"
#include "library/activations.h"
#include "model/forward.h"
#include "tests/cli_model/support.h"
#include "tests/model/quantised_models.h"

namespace fourfold::cli {
namespace {

using checkpoint::expect_error;

constexpr backend::Capacity kCapacity{
    .page_count = 1, .page_tokens = 64, .state_slot_count = 1, .row_count = 8};

TEST(LoadModel, OpensWithoutTouchingMatricesAndPreparesOnEitherBackend) {
  Captured captured;
  const auto model = open_model(checkpoint::golden_model("modelopt").string(), captured.console);
  EXPECT_EQ(model->config.vocab_size, kMicroVocabulary);
  EXPECT_TRUE(model->has_mtp());
  ASSERT_TRUE(model->defaults.has_value());
  EXPECT_EQ(captured.err.str(), "");
  for (const char* backend : {"reference", "cpu"}) {
    const PreparedModel prepared = prepare_model(*model, {.backend = backend}, kCapacity, captured.console);
    EXPECT_EQ(prepared.backend->name(), backend);
    EXPECT_EQ(prepared->program().vocab_size, kMicroVocabulary);
    EXPECT_EQ(prepared->capacity().row_count, 8);
  }
  EXPECT_EQ(captured.err.str(), "") << "small models load without a word";
}

TEST(LoadModel, Activations) {
  EXPECT_EQ(library::parse_model_activations("auto"), model::Activations::automatic);
  EXPECT_EQ(library::parse_model_activations("f32"), model::Activations::f32);
  EXPECT_EQ(library::parse_model_activations("w4a16"), model::Activations::w4a16);
  EXPECT_EQ(library::parse_model_activations("w4a4"), model::Activations::w4a4);
  EXPECT_EQ(library::parse_model_activations("w4a4-prefill"), model::Activations::w4a4_prefill);
  EXPECT_EQ(library::parse_model_activations("w8a8"), model::Activations::w8a8);
  expect_error(Code::invalid_request, {"'fp8'"}, [] { library::parse_model_activations("fp8"); });
  // A checkpoint without input scales was not made for FP4 activations.
  Captured captured;
  const auto model = open_model(checkpoint::golden_model("modelopt_mixed").string(), captured.console);
  for (const char* backend : {"reference", "sim"})
    for (const char* asked : {"w4a4", "w4a4-prefill"})
      expect_error(Code::unsupported_model, {"input scale"}, [&] {
        prepare_model(*model, {.backend = backend, .activations = asked}, kCapacity, captured.console);
      });
  // Nothing is said of an instruction that is not used.
  prepare_model(*model, {.backend = "sim", .strict = true}, kCapacity, captured.console);
}

// A chip with the FP4 instruction runs the prompts of a checkpoint that was calibrated for it so. Matrices
// whose MLP keeps them from it run with 16 bits: said, and an error under --strict.
TEST(LoadModel, TheGpuBackendSaysWhichActivationsItTakes) {
  Captured captured;
  const auto calibrated = open_model(checkpoint::golden_model("modelopt").string(), captured.console);
  const PreparedModel prompts = prepare_model(*calibrated, {.backend = "sim"}, kCapacity, captured.console);
  EXPECT_EQ(captured.err.str().find("16-bit"), std::string::npos) << captured.err.str();
  EXPECT_TRUE(std::ranges::any_of(prompts->program().matrices, [](const backend::MatrixUse& use) {
    return use.input == backend::InputFormat::nvfp4_prefill;
  }));
  // By name, too, though its MTP layer's experts are bf16.
  prepare_model(*calibrated, {.backend = "sim", .activations = "w4a4-prefill"}, kCapacity, captured.console);
  const auto model = open_model(checkpoint::golden_model("compressed").string(), captured.console);
  prepare_model(*model, {.backend = "sim", .strict = true}, kCapacity, captured.console);
  EXPECT_EQ(captured.err.str().find("16-bit"), std::string::npos) << "attention and shared experts, too";
  auto& moe = std::get<checkpoint::MoeWeights>(model->bound.weights.layers[1].mlp);
  std::get<checkpoint::Nvfp4Storage>(moe.shared->up.storage).input_scale->scale *= 2;
  const PreparedModel prepared = prepare_model(*model, {.backend = "sim"}, kCapacity, captured.console);
  EXPECT_EQ(prepared.backend->name(), "cuda");
  EXPECT_NE(captured.err.str().find("3 of 112 matrices that were made for FP4 activations take 16-bit ones"),
            std::string::npos)
      << captured.err.str();
  expect_error(Code::unsupported_model, {"w4a4-prefill", "shared_expert", "the same for gate and up"}, [&] {
    prepare_model(*model, {.backend = "sim", .activations = "w4a4-prefill"}, kCapacity, captured.console);
  });
  expect_error(Code::unsupported_op, {"shared_expert", "calibrated alike"}, [&] {
    prepare_model(*model, {.backend = "sim", .activations = "w4a4"}, kCapacity, captured.console);
  });
  EXPECT_NE(captured.err.str().find("memory: "), std::string::npos) << captured.err.str();
  EXPECT_THROW(prepare_model(*model, {.backend = "sim", .strict = true}, kCapacity, captured.console), Error);
  EXPECT_THROW(prepare_model(*model, {.backend = "sim", .threads = 2}, kCapacity, captured.console), Error);
}

// Latent attention's matrices that multiply head by head are held in bf16, whatever the checkpoint has: no
// reason to refuse FP4 for the others, and none to miss an input scale.
TEST(LoadModel, MatricesByHeadAreNotAskedForFp4) {
  Captured captured;
  const checkpoint::TempFolder temp;
  model::make_quantised(temp.path() / "model", {"tiny-mistral", "nvfp4-compressed"});
  const auto model = open_model((temp.path() / "model").string(), captured.console);
  for (const char* asked : {"w4a4-prefill", "auto"}) {
    const PreparedModel prepared =
        prepare_model(*model, {.backend = "sim", .activations = asked}, kCapacity, captured.console);
    EXPECT_TRUE(std::ranges::any_of(prepared->program().matrices, [](const backend::MatrixUse& use) {
      return use.input == backend::InputFormat::nvfp4_prefill;
    })) << asked;
  }
  EXPECT_EQ(captured.err.str().find("no input scale"), std::string::npos) << captured.err.str();
}

// What is made NVFP4 at load has no input scale: 16 bits, which is said, and no FP4 by name.
TEST(LoadModel, DenseNvfp4HasNoFp4Activations) {
  Captured captured;
  const auto model = open_model(checkpoint::golden_model("modelopt").string(), captured.console);
  prepare_model(*model, {.backend = "sim", .dense = "nvfp4"}, kCapacity, captured.console);
  EXPECT_NE(captured.err.str().find("--dense nvfp4: 26 matrices take 16-bit activations"), std::string::npos)
      << captured.err.str();
  for (const char* asked : {"w4a4", "w4a4-prefill"})
    expect_error(Code::unsupported_model, {asked, "--dense nvfp4", "no input scale"}, [&] {
      prepare_model(*model, {.backend = "sim", .activations = asked, .dense = "nvfp4"}, kCapacity,
                    captured.console);
    });
}

// A model without any input scale is W4A16 on a chip with FP4, which is said once, with the price.
TEST(LoadModel, WithoutInputScalesW4a16IsSaid) {
  const auto said = [](const char* golden, const char* dense, const char* activations) {
    Captured captured;
    const auto model = open_model(checkpoint::golden_model(golden).string(), captured.console);
    prepare_model(*model, {.backend = "sim", .activations = activations, .strict = true, .dense = dense},
                  kCapacity, captured.console);
    return captured.err.str();
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  const std::string stored = said("modelopt_mixed", "keep", "auto");
  EXPECT_EQ(count(stored,
                  "matrices stored in FP4 take 16-bit activations (w4a16), prompts too: they have no "
                  "input scale"),
            1)
      << stored;
  EXPECT_EQ(count(stored, "times the tensor-core instructions"), 1) << stored;
  const std::string made = said("bf16", "nvfp4", "auto");
  EXPECT_EQ(count(made, "--dense nvfp4: "), 2) << "this and the weights' error: " << made;
  EXPECT_EQ(count(made, "take 16-bit activations (w4a16)"), 1) << made;
  EXPECT_EQ(count(made, "times the tensor-core instructions"), 1) << made;
  EXPECT_EQ(count(said("bf16", "keep", "auto"), "16-bit"), 0) << "nothing in FP4";
  EXPECT_EQ(count(said("modelopt_mixed", "keep", "w4a16"), "16-bit"), 0) << "asked for";
}

TEST(LoadModel, ActivationsFollowTheChip) {
  using library::choose_activations;
  using library::Fp4Chip;
  using model::Activations;
  const Fp4Chip hopper{.arch = "sm90"}, workstation{.arch = "sm120", .has_instruction = true};
  const Fp4Chip odd{.arch = "sm120", .has_instruction = true, .notice = "other bits"},
      broken{.arch = "sm120", .has_instruction = true, .refusal = "beyond the bound"};
  const BackendOptions automatic{.backend = "cuda"};
  EXPECT_EQ(choose_activations(automatic, workstation).activations, Activations::w4a4_prefill);
  EXPECT_EQ(choose_activations(automatic, odd).activations, Activations::w4a4_prefill);
  EXPECT_EQ(choose_activations(automatic, odd).notice, "other bits");
  EXPECT_EQ(choose_activations(automatic, hopper).activations, Activations::w4a16);
  EXPECT_EQ(choose_activations(automatic, hopper).why_not_fp4, "sm90 has no FP4 tensor cores");
  EXPECT_EQ(choose_activations(automatic, broken).activations, Activations::w4a16);
  EXPECT_EQ(choose_activations(automatic, broken).why_not_fp4, "beyond the bound");
  EXPECT_EQ(choose_activations({.backend = "cpu"}, {}).activations, Activations::automatic);
  for (const char* asked : {"w4a4", "w4a4-prefill"}) {
    BackendOptions options{.backend = "cuda", .activations = asked};
    expect_error(Code::unsupported_op, {asked, "sm90"}, [&] { choose_activations(options, hopper); });
    expect_error(Code::unsupported_op, {asked, "beyond"}, [&] { choose_activations(options, broken); });
    EXPECT_NE(choose_activations(options, workstation).activations, Activations::w4a16);
    options.allow_emulated = true;
    EXPECT_TRUE(choose_activations(options, hopper).emulated);
    EXPECT_FALSE(choose_activations(options, workstation).emulated);
    expect_error(Code::unsupported_op, {asked, "beyond"}, [&] { choose_activations(options, broken); });
  }
}

// FP8 x FP8: on chips that have kernels for it, for checkpoints that have dense matrices in FP8.
TEST(LoadModel, Fp8ActivationsAreGivenOrRefused) {
  using library::choose_activations;
  const BackendOptions asked{.backend = "cuda", .activations = "w8a8"};
  EXPECT_EQ(choose_activations(asked, library::modelled_chip(plan::kSm90)).activations,
            model::Activations::w8a8);
  library::Fp4Chip workstation = library::modelled_chip(plan::kSm120);
  workstation.fp8_notice = "a last bit";
  EXPECT_EQ(choose_activations(asked, workstation).activations, model::Activations::w8a8);
  EXPECT_EQ(choose_activations(asked, workstation).notice, "a last bit");
  workstation.fp8_refusal = "beyond the bound";
  expect_error(Code::unsupported_op, {"w8a8", "sm120", "beyond the bound"},
               [&] { choose_activations(asked, workstation); });
  expect_error(Code::unsupported_op, {"w8a8", "sm100", "no FP8 x FP8 kernels"},
               [&] { choose_activations(asked, library::modelled_chip(plan::kSm100)); });
  Captured captured;
  const auto mixed = open_model(checkpoint::golden_model("modelopt_mixed").string(), captured.console);
  const auto plain = open_model(checkpoint::golden_model("bf16").string(), captured.console);
  const PreparedModel reference =
      prepare_model(*mixed, {.backend = "reference", .activations = "w8a8"}, kCapacity, captured.console);
  const auto counted = [](const backend::Program& program) {
    return std::ranges::count_if(program.matrices, [](const backend::MatrixUse& use) {
      return use.input == backend::InputFormat::fp8_prefill;
    });
  };
  EXPECT_GT(counted(reference->program()), 0);
  expect_error(Code::unsupported_op, {"the CPU backend", "w8a8"}, [&] {
    prepare_model(*mixed, {.backend = "cpu", .activations = "w8a8"}, kCapacity, captured.console);
  });
  expect_error(Code::unsupported_model, {"w8a8", "no dense matrix of this checkpoint is in FP8"}, [&] {
    prepare_model(*plain, {.backend = "reference", .activations = "w8a8"}, kCapacity, captured.console);
  });
  // What --dense holds in FP8 takes FP8 rows; the head and the small projections of DeltaNet are not among
  // it.
  backend::Program program =
      model::build_program(plain->config, plain->bound.weights, model::Activations::w8a8);
  library::take_fp8_rows(program, {.backend = "sim", .dense = "fp8"}, model::Activations::w8a8);
  for (const backend::MatrixUse& use : program.matrices) {
    const checkpoint::TensorRole role = use.matrix->role;
    const bool is_dense = !use.matrix->of_mtp && (role == checkpoint::TensorRole::attention ||
                                                  role == checkpoint::TensorRole::delta ||
                                                  role == checkpoint::TensorRole::shared_expert);
    EXPECT_EQ(use.input == backend::InputFormat::fp8_prefill, is_dense) << use.matrix->name;
  }
}

TEST(LoadModel, TheDefaultIsTheCheckoutsOrTheInstalledOne) {
  const checkpoint::TempFolder tree;
  const std::filesystem::path bin = tree.path() / "bin";
  const std::filesystem::path checkout = tree.path() / "models" / "storyteller";
  const std::filesystem::path installed = tree.path() / "share" / "fourfold" / "models" / "storyteller";
  expect_error(Code::invalid_request, {checkout.string(), installed.string()}, [&] { built_in_model(bin); });
  for (const std::filesystem::path& folder : {installed, checkout}) {  // the nearer one wins
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << "{}";
    EXPECT_EQ(built_in_model(bin), folder.string());
  }
}

// What quantising at load costs is said, and what cannot be is refused.
TEST(LoadModel, QuantisesDenseMatricesForTheGpu) {
  Captured captured;
  const auto model = open_model(checkpoint::golden_model("bf16").string(), captured.console);
  const PreparedModel prepared =
      prepare_model(*model, {.backend = "sim", .strict = true, .dense = "fp8"}, kCapacity, captured.console);
  EXPECT_TRUE(contains(captured.err.str(), "--dense fp8: relative RMS error of the weights: attention 2."))
      << captured.err.str();
  EXPECT_TRUE(contains(captured.err.str(), "head 2.")) << captured.err.str();
  EXPECT_EQ(prepared.load.dense.size(), 4u);
  const auto refuses = [&](const BackendOptions& options, const std::string& why) {
    expect_error(Code::invalid_request, {why},
                 [&] { prepare_model(*model, options, kCapacity, captured.console); });
  };
  refuses({.backend = "cpu", .dense = "fp8"}, "--dense");
  refuses({.backend = "reference", .cache = "somewhere"}, "--cache");
  refuses({.backend = "cpu", .rebuild_cache = true}, "--rebuild-cache");
  refuses({.backend = "sim", .rebuild_cache = true}, "--cache DIR");
  refuses({.backend = "sim", .dense = "bf16"}, "keep, fp8 and nvfp4");
  const auto mixed = open_model(checkpoint::golden_model("modelopt_mixed").string(), captured.console);
  prepare_model(*mixed, {.backend = "sim", .dense = "nvfp4"}, kCapacity, captured.console);
  EXPECT_TRUE(contains(captured.err.str(), "are quantised already")) << captured.err.str();
}

// So is what a GPU's bf16 leaves of NVFP4_AWQ's products, which the CPU holds in f32.
TEST(LoadModel, SaysWhatRoundingAwqCosts) {
  const checkpoint::TempFolder folder;
  model::make_quantised(folder.path() / "model", {"tiny-dense", "nvfp4-awq"});
  Captured captured;
  const auto model = open_model((folder.path() / "model").string(), captured.console);
  double squares = 0, off_squares = 0;
  std::size_t count = 0;
  checkpoint::for_each_matrix(model->bound.weights, [&](const checkpoint::Matrix& matrix) {
    if (checkpoint::format_of(matrix) != checkpoint::MatrixFormat::f32) return;
    ++count;
    for (const float value : checkpoint::read_all(matrix)) {
      const double wanted = value, off = to_float(to_bf16(value)) - wanted;
      squares += wanted * wanted, off_squares += off * off;
    }
  });
  ASSERT_EQ(count, model->bound.folded.size());
  const double error = std::sqrt(off_squares / squares);
  EXPECT_NEAR(error, 0.00166, 0.0002) << "8 significant bits";
  char text[64];
  std::snprintf(text, sizeof text, "relative RMS error of the weights: %.3f %% (%zu matrices)", 100 * error,
                count);
  const auto said = [&](const BackendOptions& options) {
    Captured here;
    prepare_model(*model, options, kCapacity, here.console);
    return here.err.str();
  };
  EXPECT_TRUE(contains(said({.backend = "sim"}), text)) << text << "\n" << said({.backend = "sim"});
  EXPECT_FALSE(contains(said({.backend = "cpu"}), "RMS"));
  const std::string dense = said({.backend = "sim", .dense = "fp8"});
  EXPECT_FALSE(contains(dense, "held as bf16: relative")) << dense;
}

TEST(BenchLoad, TimesTheCheckpointAndThenItsPackedCopy) {
  const checkpoint::TempFolder folder;
  Captured captured;
  BenchLoadOptions options{.model = checkpoint::golden_model("bf16").string()};
  options.backend = {.backend = "sim", .cache = folder.path().string()};
  EXPECT_EQ(run_bench_load(options, captured.console), kFine);
  const std::string out = captured.out.str();
  for (const char* part :
       {"from the checkpoint", "from the packed copy", "reading the file", "host to device", "of the slower"})
    EXPECT_TRUE(contains(out, part)) << part << " is not in " << out;
  options.backend.backend = "cpu";
  expect_error(Code::invalid_request, {"cuda and sim"}, [&] { run_bench_load(options, captured.console); });
}

// A limit on file sizes stands for the full disk: the answer comes all the same, and nothing is left.
TEST(LoadModel, GoesOnWhenThePackedCopyCannotBeWritten) {
  if (!program_exists()) GTEST_SKIP() << "the program is not built";
  const checkpoint::TempFolder folder;
  const Outcome outcome =
      shell("ulimit -f 200; PROGRAM run '" + checkpoint::golden_model("bf16").string() +
            "' --backend sim --ids 1,2 --max-tokens 1 --cache '" + folder.path().string() + "/c' 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "the packed copy was not written")) << outcome.out;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() / "c"));
}

}  // namespace
}  // namespace fourfold::cli
