#include "model/builder.h"

#include <map>

#include "backend/cost.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::InputFormat;
using backend::Pass;

int count_lines_with(const std::string& text, std::string_view word) {
  int count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Program, IsSoundAndHasTwoCutPointsALayer) {
  for (const char* name : {"bf16", "compressed", "modelopt", "modelopt_mixed"}) {
    const Golden golden(name);
    const backend::Program program = golden.program(Activations::automatic);
    EXPECT_TRUE(problems_of(program).empty());
    const std::string main = to_text(program, Pass::main);
    EXPECT_EQ(count_lines_with(main, "all_reduce("), 2 * 4);
    EXPECT_EQ(count_lines_with(main, "delta_rule("), 3);
    EXPECT_EQ(count_lines_with(main, " = attention("), 1);
    EXPECT_EQ(count_lines_with(to_text(program, Pass::draft), "all_reduce("), 2);
    EXPECT_EQ(program.kv_caches.size(), 2u);  // the full layer's and the MTP layer's
    EXPECT_EQ(program.delta_states.size(), 3u);
  }
}

// Each matrix stands in the table once, though embedding and head serve both passes.
TEST(Program, HoldsEveryMatrixOnce) {
  const Golden golden("bf16");
  const backend::Program program = golden.program(Activations::f32);
  std::size_t count = 0;
  checkpoint::for_each_matrix(golden.model.weights, [&](const checkpoint::Matrix&) { ++count; });
  EXPECT_EQ(program.matrices.size(), count);
}

// One token reads every dense matrix, one row of the embedding and two of eight experts.
TEST(Program, CostsWhatItsMatricesTake) {
  const Golden golden("modelopt_mixed");
  const auto& weights = golden.model.weights;
  double wanted = static_cast<double>(checkpoint::stored_bytes(weights.embedding)) / 320 +
                  static_cast<double>(checkpoint::stored_bytes(weights.head));
  const auto count = [&](const checkpoint::Matrix& matrix, double share) {
    wanted += share * static_cast<double>(checkpoint::stored_bytes(matrix));
  };
  const auto count_mlp = [&](const checkpoint::GatedMlp& mlp, double share) {
    count(mlp.gate, share), count(mlp.up, share), count(mlp.down, share);
  };
  for (const checkpoint::LayerWeights& layer : weights.layers) {
    if (const auto* delta = std::get_if<checkpoint::DeltaWeights>(&layer.mixer))
      for (const auto* matrix : {&delta->qkv, &delta->gate, &delta->beta, &delta->decay, &delta->output})
        count(*matrix, 1);
    if (const auto* full = std::get_if<checkpoint::AttentionWeights>(&layer.mixer))
      for (const auto* matrix : {&full->query, &full->key, &full->value, &full->output}) count(*matrix, 1);
    const auto& moe = std::get<checkpoint::MoeWeights>(layer.mlp);
    for (const checkpoint::GatedMlp& expert : moe.experts) count_mlp(expert, 2.0 / 8);
    count_mlp(*moe.shared, 1);
    count(moe.router, 1), count(*moe.shared_gate, 1);
  }
  const backend::Program program = golden.program(Activations::automatic);
  EXPECT_NEAR(backend::cost_of(program, Pass::main, {}).weight_bytes, wanted, 1e-9 * wanted);
}

std::map<InputFormat, int> count_inputs(const Golden& golden, Activations activations) {
  std::map<InputFormat, int> counts;
  for (const backend::MatrixUse& use : golden.program(activations).matrices) ++counts[use.input];
  return counts;
}

TEST(Activations, AutomaticIsWhatTheCheckpointWasMadeFor) {
  EXPECT_EQ(count_inputs(Golden("bf16"), Activations::automatic).count(InputFormat::nvfp4), 0u);
  EXPECT_EQ(count_inputs(Golden("modelopt_mixed"), Activations::automatic).count(InputFormat::nvfp4), 0u);
  for (const char* name : {"modelopt", "compressed"}) {
    const Golden golden(name);
    const auto counts = count_inputs(golden, Activations::automatic);
    EXPECT_EQ(counts, count_inputs(golden, Activations::w4a4));
    EXPECT_GE(counts.at(InputFormat::nvfp4), 4 * 8 * 3);
    EXPECT_EQ(count_inputs(golden, Activations::w4a16).size(), 1u);
    EXPECT_EQ(count_inputs(golden, Activations::f32).begin()->first, InputFormat::f32);
  }
}

// Of a layer's experts all or none, and so of an MLP: one that lacks a scale, or whose gate and up differ in
// theirs, takes 16 bits without a refusal.
TEST(Activations, Fp4PromptsAreForMlpsThatHaveAllScales) {
  EXPECT_EQ(count_inputs(Golden("modelopt_mixed"), Activations::w4a4_prefill).size(), 1u);
  for (const char* name : {"modelopt", "compressed"}) {
    Golden golden(name);
    const int all = count_inputs(golden, Activations::w4a4_prefill).at(InputFormat::nvfp4_prefill);
    EXPECT_GE(all, 4 * 8 * 3);
    const auto storage_of = [&](std::size_t layer, std::size_t expert) -> checkpoint::Nvfp4Storage& {
      auto& moe = std::get<checkpoint::MoeWeights>(golden.model.weights.layers[layer].mlp);
      return std::get<checkpoint::Nvfp4Storage>(moe.experts[expert].up.storage);
    };
    storage_of(1, 3).input_scale.reset();
    EXPECT_EQ(count_inputs(golden, Activations::w4a4_prefill).at(InputFormat::nvfp4_prefill), all - 8 * 3);
    storage_of(2, 5).input_scale->inverse *= 2;
    EXPECT_EQ(count_inputs(golden, Activations::w4a4_prefill).at(InputFormat::nvfp4_prefill),
              all - 2 * 8 * 3);
  }
  Golden golden("compressed");
  const auto fp4 = [&] {
    return count_inputs(golden, Activations::w4a4_prefill).at(InputFormat::nvfp4_prefill);
  };
  const int all = fp4();
  EXPECT_EQ(all, count_inputs(golden, Activations::w4a4).at(InputFormat::nvfp4))
      << "attention, shared experts";
  const auto shared_of = [&](std::size_t layer) -> checkpoint::GatedMlp& {
    return *std::get<checkpoint::MoeWeights>(golden.model.weights.layers[layer].mlp).shared;
  };
  std::get<checkpoint::Nvfp4Storage>(shared_of(0).down.storage).input_scale.reset();
  EXPECT_EQ(fp4(), all - 3);
  std::get<checkpoint::Nvfp4Storage>(shared_of(1).gate.storage).input_scale->scale *= 2;
  EXPECT_EQ(fp4(), all - 2 * 3);
}

// w8a8: what layers multiply their rows with and is stored in FP8; neither experts nor the head nor what
// joins the inputs of the MTP layer, whoever stores it so.
TEST(Activations, Fp8PromptsAreForDenseMatrices) {
  for (const char* name : {"bf16", "modelopt", "compressed"})
    EXPECT_EQ(count_inputs(Golden(name), Activations::w8a8).count(InputFormat::fp8_prefill), 0u) << name;
  const Golden golden("modelopt_mixed");
  int stored = 0;
  for (const backend::MatrixUse& use : golden.program(Activations::w8a8).matrices) {
    const bool is_fp8 = std::holds_alternative<checkpoint::Fp8Storage>(use.matrix->storage);
    stored += is_fp8 ? 1 : 0;
    EXPECT_EQ(use.input, is_fp8 ? InputFormat::fp8_prefill : InputFormat::bf16) << use.matrix->name;
  }
  EXPECT_GT(stored, 0);
  backend::Program all = golden.program(Activations::w8a8);
  take_fp8_rows(all, [](const checkpoint::Matrix&) { return true; });
  for (const backend::MatrixUse& use : all.matrices) {
    const std::string_view name = use.matrix->name;
    const bool is_other = name.find(".experts.") != std::string_view::npos || name.find("lm_head") == 0 ||
                          name.find("embed") != std::string_view::npos || name == "mtp.fc.weight";
    EXPECT_EQ(use.input == InputFormat::fp8_prefill, !is_other) << name;
  }
}

TEST(Activations, Fp4IsRefusedWithoutInputScales) {
  const Golden golden("modelopt_mixed");
  const std::string hint = checkpoint::expect_error(
      Code::unsupported_model, {"has no input scale", "experts"}, [&] { golden.program(Activations::w4a4); });
  EXPECT_NE(hint.find("w4a16"), std::string::npos);
}

TEST(Activations, RoundTheCacheUnlessExact) {
  const Golden golden("bf16");
  EXPECT_EQ(golden.program(Activations::f32).kv_caches[0].format, backend::KvFormat::f32);
  EXPECT_EQ(golden.program(Activations::automatic).kv_caches[0].format, backend::KvFormat::bf16);
}

}  // namespace
}  // namespace fourfold::model
