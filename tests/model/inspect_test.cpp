#include "model/inspect.h"

#include "backend/cost.h"
#include "checkpoint/write/random_model.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using checkpoint::MatrixFormat;

TEST(Inspect, GroupsMatricesByNameFormatAndSize) {
  const Golden golden("compressed");
  const auto groups = group_matrices(golden.model.weights);
  std::int64_t matrices = 0;
  std::uint64_t bytes = 0;
  bool experts = false;
  for (const MatrixGroup& group : groups) {
    matrices += group.count;
    bytes += group.bytes;
    if (group.pattern != "model.language_model.layers.N.mlp.experts.N.up_proj.weight_packed") continue;
    experts = true;
    EXPECT_EQ(group.format, MatrixFormat::nvfp4);
    EXPECT_EQ(group.count, 4 * 8);
    EXPECT_EQ(group.rows, 64);
    EXPECT_EQ(group.columns, 128);
    EXPECT_TRUE(group.input_scale);
    EXPECT_EQ(group.bytes, 4u * 8 * 64 * 128 * 9 / 16);
  }
  EXPECT_TRUE(experts);
  std::int64_t all = 0;
  checkpoint::for_each_matrix(golden.model.weights, [&](const checkpoint::Matrix&) { ++all; });
  EXPECT_EQ(matrices, all);
  std::uint64_t wanted = 0;
  checkpoint::for_each_matrix(golden.model.weights,
                              [&](const checkpoint::Matrix& m) { wanted += checkpoint::stored_bytes(m); });
  EXPECT_EQ(bytes, wanted);
}

// The published table of bytes per token, 397B with routed experts in NVFP4 (GB): attention 3.15, DeltaNet
// 10.62, routed 4.25, shared 1.51, router 0.25, head 2.03. Weights 396 billion, 16.3 of them active.
TEST(Inspect, BytesPerTokenOfThe397B) {
  checkpoint::TempFolder temp;
  {
    checkpoint::OutputFolder folder(temp.path() / "model");
    checkpoint::RandomModelOptions options;
    options.shape = checkpoint::find_shape("397b");
    options.scheme = checkpoint::scheme_named("modelopt");
    options.sparse = true;
    checkpoint::write_random_model(folder, options, {0, 1});
    folder.publish();
  }
  const Loaded model(temp.path() / "model");
  const backend::Program program = model.program(Activations::automatic);
  const TokenBytes bytes = token_bytes(program, backend::Pass::main, 0);
  EXPECT_NEAR(bytes.attention / 1e9, 3.15, 0.005);
  EXPECT_NEAR(bytes.delta / 1e9, 10.62, 0.005);
  EXPECT_NEAR(bytes.routed / 1e9, 4.25, 0.005);
  EXPECT_NEAR(bytes.shared / 1e9, 1.51, 0.005);
  EXPECT_NEAR(bytes.router / 1e9, 0.25, 0.005);
  EXPECT_NEAR(bytes.head / 1e9, 2.03, 0.005);
  EXPECT_EQ(bytes.dense_mlp, 0);
  EXPECT_EQ(bytes.other, 0);
  const backend::Cost all = backend::cost_of(program, backend::Pass::main, {});
  EXPECT_NEAR(bytes.total(), all.weight_bytes + all.state_bytes, 1);
  // The MTP layer in BF16 is 0.56 GB, and the head is read again.
  EXPECT_NEAR(token_bytes(program, backend::Pass::draft, 0).total() / 1e9, 0.56 + 2.03, 0.01);
  const ParameterCount count = count_parameters(program);
  EXPECT_NEAR(count.total / 1e9, 396.3 + 6.6, 0.1);
  EXPECT_NEAR(count.active / 1e9, 16.3, 0.05);
  // A context costs the caches of the fifteen full layers: 30,720 bytes a position.
  EXPECT_NEAR(token_bytes(program, backend::Pass::main, 1000).state - bytes.state, 30'720e3, 1);
}

// As published, in billions: 20.91 with 3.61 active, 116.83 with 5.13. All experts of a layer are slices of
// one tensor.
TEST(Inspect, ParametersOfGptOss) {
  for (const auto& [shape, total, active] :
       {std::tuple("gpt-oss-20b", 20.91, 3.61), std::tuple("gpt-oss-120b", 116.83, 5.13)}) {
    checkpoint::TempFolder temp;
    {
      checkpoint::OutputFolder folder(temp.path() / "model");
      checkpoint::RandomModelOptions options;
      options.shape = checkpoint::find_shape(shape);
      options.scheme = checkpoint::scheme_named("mxfp4");
      options.sparse = true;
      checkpoint::write_random_model(folder, options, {0, 1});
      folder.publish();
    }
    const Loaded model(temp.path() / "model");
    const ParameterCount count = count_parameters(model.program(Activations::automatic));
    EXPECT_NEAR(count.total / 1e9, total, 0.005) << shape;
    EXPECT_NEAR(count.active / 1e9, active, 0.005) << shape;
  }
}

}  // namespace
}  // namespace fourfold::model
