// Backends against each other, layer by layer: what agrees is fine, and an error is shown in the layer that
// has it and in no other.
#include "evaluate/diff_backends.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/made_models.h"

namespace fourfold::evaluate {
namespace {

using model::Activations;
using model::Golden;
using Prepared = std::unique_ptr<backend::Prepared>;

DiffRequest request_for(const model::Loaded& model, std::vector<std::string> backends) {
  return {.config = model.config,
          .weights = model.model.weights,
          .activations = Activations::w4a16,
          .tokens = {3, 1, 4, 1, 5, 9, 2, 6},
          .generated_count = 2,
          .backends = std::move(backends)};
}

Prepared prepare_cpu(backend::Program program, const backend::Capacity& capacity) {
  return backend::make_cpu_backend({.threads = 1, .keep_values = true})
      ->prepare(std::move(program), capacity);
}

TEST(DiffBackends, ThreeBackendsAgree) {
  const Golden golden("modelopt_mixed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto gpu = backend::make_gpu_backend(*machine, {.keep_values = true});
  const DiffBackends backends{
      [&](const std::string& name, backend::Program program, const backend::Capacity& capacity) {
        if (name == "sim") return gpu->prepare(std::move(program), capacity);
        if (name == "cpu") return prepare_cpu(std::move(program), capacity);
        return backend::ReferenceBackend().prepare(std::move(program), capacity);
      },
      prepare_cpu};
  // The GPU first: the margins of its routers come from elsewhere.
  const auto found = diff_backends(request_for(golden, {"sim", "reference", "cpu"}), backends, [](auto&) {});
  // The embedding, four layers and the logits, twice; a GPU keeps no final norm without MTP.
  ASSERT_EQ(found.size(), 12u);
  std::int64_t undecided = 0;
  for (const LayerDifference& item : found) {
    EXPECT_TRUE(item.fine()) << item.what << " " << item.backend << ": " << item.relative;
    EXPECT_EQ(item.row_count + item.undecided_count, 8);
    undecided += item.undecided_count;
    // bf16 activations on a GPU round at other places than the reference: no difference at all would mean
    // that one was held against itself.
    if (item.what != "embedding") {
      EXPECT_GT(item.relative, 0) << item.what;
    }
  }
  EXPECT_LT(undecided, 24) << "most rows have a clear router";
}

// Routers of sigmoids with a bias, and of groups: their margins are of what they choose by. And layers that
// see a window alone, each by itself.
TEST(DiffBackends, LayersOfOtherFamiliesAgree) {
  for (const char* shape : {"tiny-glm-odd", "tiny-minimax-odd", "tiny-gpt-oss-odd", "tiny-deepseek-odd"}) {
    checkpoint::TempFolder temp;
    model::make_model(temp.path() / "model", shape, "nvfp4");
    const model::Loaded made(temp.path() / "model");
    const DiffBackends backends{
        [&](const std::string& name, backend::Program program, const backend::Capacity& capacity) {
          if (name == "cpu") return prepare_cpu(std::move(program), capacity);
          return backend::ReferenceBackend().prepare(std::move(program), capacity);
        },
        prepare_cpu};
    DiffRequest request = request_for(made, {"reference", "cpu"});
    request.tokens.clear();
    for (std::int32_t i = 0; i < 60; ++i) request.tokens.push_back((i * 37 + 5) % 500);
    const auto found = diff_backends(request, backends, [](auto&) {});
    ASSERT_EQ(found.size(), 6u);  // the embedding, three layers, the norm and the logits
    std::int64_t undecided = 0;
    for (const LayerDifference& item : found) {
      EXPECT_TRUE(item.fine()) << shape << " " << item.what << ": " << item.relative;
      undecided += item.undecided_count;
    }
    // Some rows are too close to call, and most are not.
    EXPECT_GT(undecided, 0) << shape;
    EXPECT_LT(undecided, 120) << shape;
  }
}

// A backend with one wrong weight in layer 2.
TEST(DiffBackends, AnErrorIsFoundInItsLayer) {
  const Golden golden("bf16");
  const checkpoint::Matrix& right =
      std::get<checkpoint::DeltaWeights>(golden.model.weights.layers[2].mixer).output;
  std::vector<float> values = checkpoint::read_all(right);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = -values[i];
  const checkpoint::Matrix wrong{right.name, right.rows, right.columns, checkpoint::F32Storage{values}, {}};
  const DiffBackends backends{
      [&](const std::string& name, backend::Program program, const backend::Capacity& capacity) {
        if (name == "wrong")
          for (backend::MatrixUse& use : program.matrices)
            if (use.matrix->name == right.name) use.matrix = &wrong;
        return backend::ReferenceBackend().prepare(std::move(program), capacity);
      },
      prepare_cpu};
  for (const Activations activations : {Activations::w4a16, Activations::f32}) {
    DiffRequest request = request_for(golden, {"right", "wrong"});
    request.activations = activations;
    int shown = 0;
    const auto found = diff_backends(request, backends, [&](auto&) { ++shown; });
    ASSERT_EQ(found.size(), 7u);  // embedding, four layers, final norm, logits
    EXPECT_EQ(shown, 7);
    for (const LayerDifference& item : found) {
      EXPECT_EQ(item.fine(), item.what != "layer 2") << item.what << " " << item.relative;
      EXPECT_EQ(item.bounds_largest, activations == Activations::f32);
    }
  }
}

// Op by op the first value that is off is that of the wrong matrix.
TEST(DiffBackends, AnErrorIsFoundInItsOp) {
  const Golden golden("bf16");
  const checkpoint::Matrix& right =
      std::get<checkpoint::DeltaWeights>(golden.model.weights.layers[1].mixer).gate;
  std::vector<float> values = checkpoint::read_all(right);
  for (float& x : values) x = -x;
  const checkpoint::Matrix wrong{right.name, right.rows, right.columns, checkpoint::F32Storage{values}, {}};
  const DiffBackends backends{
      [&](const std::string& name, backend::Program program, const backend::Capacity& capacity) {
        if (name == "cpu") return prepare_cpu(std::move(program), capacity);
        for (backend::MatrixUse& use : program.matrices)
          if (use.matrix->name == right.name) use.matrix = &wrong;
        return backend::ReferenceBackend().prepare(std::move(program), capacity);
      },
      prepare_cpu};
  DiffRequest request = request_for(golden, {"cpu", "wrong"});
  request.by_op = true;
  const auto found = diff_backends(request, backends, [](auto&) {});
  EXPECT_GT(found.size(), 40u);
  const auto first = std::find_if(found.begin(), found.end(), [](const auto& item) { return !item.fine(); });
  ASSERT_NE(first, found.end());
  EXPECT_EQ(first->what, "layers.1.delta.gate");
}

TEST(DiffBackends, RefusesMoreGeneratedRowsThanTokens) {
  const Golden golden("bf16");
  DiffRequest request = request_for(golden, {"a", "b"});
  request.generated_count = 9;
  try {
    diff_backends(request, {}, [](auto&) {});
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("8 tokens, 9 of them generated"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace fourfold::evaluate
