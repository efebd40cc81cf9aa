// Layer by layer: each layer gets the reference's input and must give the reference's output, with exact and
// with rounded activations. Errors of one layer do not hide in those of another, and a routing decision that
// rounding turns over spoils one row only.
#include "model/layer.h"

#include <cmath>
#include <numeric>

#include "model/rope.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::Pass;

// One layer of a model as a program of its own. Its "embedding" is the table of inputs, so token t is row t.
struct OneLayer {
  OneLayer(const Golden& golden, std::size_t index, std::span<const float> inputs, Activations activations) {
    const std::int64_t hidden = golden.config.hidden_size;
    const auto rows = static_cast<std::int64_t>(inputs.size()) / hidden;
    table = {"inputs", rows, hidden, checkpoint::F32Storage{inputs}, {}};
    program.hidden_size = hidden;
    program.vocab_size = rows;
    program.position_limit = golden.config.position_limit;
    program.ropes.push_back(make_rope(golden.config.rope));
    Builder builder(program, activations);
    LayerBuilder layers(builder, golden.config, backend::RopeId{0}, 0);
    const auto& weights = golden.model.weights;
    out = layers.layer("layer.", builder.embed("in", table), weights.layers[index]);
    program.main_logits = builder.logits("", out, table);
    prepared = backend::ReferenceBackend().prepare(program, kFourSequences);
    std::vector<std::int32_t> tokens(rows);
    std::iota(tokens.begin(), tokens.end(), 0);
    auto all = part(0, 0, tokens);
    all.all_logits = false;
    step(*prepared, Pass::main, {all});
  }
  std::span<const float> result() const { return prepared->value(out); }

  checkpoint::Matrix table;
  backend::Program program;
  backend::ValueId out;
  std::unique_ptr<backend::Prepared> prepared;
};

double norm(std::span<const float> a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  std::vector<float> difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm(difference);
}

// Rows of a layer's output whose distance from the reference exceeds the bound (of the row's norm), among the
// rows whose routing the reference decided by more than `margin`.
struct Count {
  int compared = 0;
  int beyond = 0;
  double worst = 0;
};
Count compare_layers(const Golden& golden, Activations activations, double bound, double margin) {
  Count count;
  const std::size_t hidden = golden.config.hidden_size;
  const auto stored = golden.floats("long.hidden_f32");
  const std::span<const float> states = stored;
  const auto margins = golden.floats("long.router_margin");
  const std::size_t layer_count = golden.config.layers.size();
  const std::size_t rows = states.size() / hidden / (layer_count + 1);
  for (std::size_t layer = 0; layer < layer_count; ++layer) {
    const OneLayer one(golden, layer, states.subspan(layer * rows * hidden, rows * hidden), activations);
    const auto wanted = states.subspan((layer + 1) * rows * hidden, rows * hidden);
    for (std::size_t row = 0; row < rows; ++row) {
      if (margins[layer * rows + row] < margin) continue;
      const auto ours = one.result().subspan(row * hidden, hidden);
      const auto theirs = wanted.subspan(row * hidden, hidden);
      const double relative = distance(ours, theirs) / norm(theirs);
      ++count.compared;
      if (!(relative <= bound)) ++count.beyond;
      count.worst = std::max(count.worst, relative);
    }
  }
  return count;
}

class GoldenLayers : public testing::TestWithParam<const char*> {};

// Theirs rounds each of some 900 additions of a layer (projections of 128, state and softmax sums, experts):
// at worst 900 * 2^-24 = 5.4e-5 of what is summed. Ours rounds once an op.
TEST_P(GoldenLayers, ExactActivations) {
  const Count count = compare_layers(Golden(GetParam()), Activations::f32, 900 * 0x1p-24, 0);
  EXPECT_EQ(count.beyond, 0) << "worst " << count.worst;
  EXPECT_EQ(count.compared, 4 * 150);
}

// bf16 keeps 2^-9 of a value. A layer rounds in series the input of the projections, the keys and values, the
// input of the output projection, that of gate and up, and that of down: five, and the decay and routing
// weight are exponentials of such results; twice that, 10 * 2^-9 = 2e-2 of the row. A routing margin of 0.05
// is beyond what this can turn over in logits of size 1 to 4.
TEST_P(GoldenLayers, SixteenBitActivations) {
  const Count count = compare_layers(Golden(GetParam()), Activations::w4a16, 10 * 0x1p-9, 0.05);
  EXPECT_EQ(count.beyond, 0) << "worst " << count.worst;
  EXPECT_GT(count.worst, 0) << "nothing was rounded";
  EXPECT_GT(count.compared, 500);
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenLayers,
                         testing::Values("bf16", "compressed", "modelopt", "modelopt_mixed"));

// FP4 keeps 1/4 of a value at worst (between 1 and 1.5 the half gap is 0.25) and more of small ones; experts
// in FP4 are a part of the row. So the bound is loose, and what it guards is the scale: a wrong global or
// block scale is off by far more.
TEST(GoldenFp4Layers, Fp4ActivationsStayInScale) {
  for (const char* name : {"modelopt", "compressed"}) {
    const Count count = compare_layers(Golden(name), Activations::w4a4, 0.5, 0.5);
    EXPECT_EQ(count.beyond, 0) << name << " worst " << count.worst;
    EXPECT_GT(count.worst, 10 * 0x1p-9) << "nothing was rounded to FP4";
    EXPECT_GT(count.compared, 300);
  }
}

}  // namespace
}  // namespace fourfold::model
