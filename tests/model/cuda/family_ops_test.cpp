// What other families ask of the GPU beyond Qwen's: routers of sigmoid scores, biases, heads without a norm,
// norms over all heads, windows and sinks, experts with biases and a clamped SwiGLU. A model of make-model
// gets such ops, and its first layer must give the reference's numbers; a reference without the op must be
// noticed.
#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/random.h"
#include "evaluate/diff_backends.h"
#include "tests/model/cuda/first_layer.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using checkpoint::expect_error;

// One model for all tests, in bf16 and with experts in MXFP4: plain attention with a norm for each head,
// experts without a shared one. Scores of attention have a deviation that makes it peaked: what queries and
// keys are shows in every row.
checkpoint::ModelShape made_shape(int head_dim = 64, int hidden = 128) {
  checkpoint::ModelShape shape = checkpoint::find_shape("tiny-qwen3-moe");
  shape.layers = 1;
  shape.head_dim = head_dim;
  shape.hidden = hidden;
  shape.experts = 16;
  shape.experts_per_token = 4;
  shape.head_norm = 2.25;
  shape.attention_gain = 4;
  return shape;
}
const Loaded& made() {
  static const MadeModel model(made_shape(), "bf16");
  return model.loaded;
}
const Loaded& made_mxfp4() {
  // The fewest columns that one row takes in two kernels are 256.
  static const MadeModel model(made_shape(64, 320), "mxfp4");
  return model.loaded;
}

// The program with other ops in every layer.
class Edited {
 public:
  explicit Edited(const Changed::Which& is_zero, const Loaded& model = made())
      : changed_(model, Activations::w4a16, is_zero), program_(changed_.program()) {}
  backend::Program& program() { return program_; }
  const backend::Program& program() const { return program_; }

  backend::VectorId vector(std::int64_t size, double mean, double deviation) {
    auto& values = vectors_.emplace_back();
    for (std::int64_t i = 0; i < size; ++i)
      values.push_back(static_cast<float>(mean + deviation * random_.normal()));
    program_.vectors.push_back({"made up", values});
    return {static_cast<std::int32_t>(program_.vectors.size()) - 1};
  }
  std::int64_t columns(backend::ValueId id) const { return program_.value(id).columns; }

  template <class Op, class Edit>
  Edited& each(const Edit& edit) {
    for (backend::Op& op : program_.main)
      if (auto* found = std::get_if<Op>(&op)) edit(*found);
    return *this;
  }
  // A norm over all heads in place of each head's own.
  Edited& with_row_norms() {
    std::vector<backend::Op> ops;
    for (backend::Op op : program_.main) {
      if (auto* turn = std::get_if<backend::HeadNormRope>(&op)) {
        program_.values.push_back({"row norm", columns(turn->in)});
        const backend::ResultId normed{{static_cast<std::int32_t>(program_.values.size()) - 1}};
        ops.push_back(backend::RmsNorm{turn->in, vector(columns(turn->in), 1.5, 0.3), false, 1e-5, normed});
        turn->in = normed;
        turn->weight = {};
      }
      ops.push_back(op);
    }
    program_.main = ops;
    return *this;
  }

 private:
  Changed changed_;
  backend::Program program_;
  std::deque<std::vector<float>> vectors_;
  Random random_{5};
};

std::vector<float> layer_of(const backend::Backend& backend, const Edited& edited, const Rows& rows) {
  const auto prepared = const_cast<backend::Backend&>(backend).prepare(edited.program(), rows.capacity);
  return first_layer(*prepared, rows.tokens, rows.role, rows.is_one_sequence);
}
std::vector<float> on_gpu(const Edited& edited, const Rows& rows, const plan::ArchFacts& arch) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
  return layer_of(*backend::make_gpu_backend(*machine, {.keep_values = true}), edited, rows);
}

Rows some_rows(Role role, std::size_t count) {
  Rows rows{role, std::vector<std::int32_t>(count)};
  for (std::size_t i = 0; i < count; ++i) rows.tokens[i] = static_cast<std::int32_t>(13 * i % 600);
  return rows;
}

// A prompt and generated rows. seen: the share of rows that a reference without the op must get wrong.
void expect_same(const Edited& edited, const Edited& without, const std::vector<Rows>& batches, double bound,
                 double seen) {
  for (const Rows& rows : batches) {
    const std::size_t count = rows.tokens.size();
    SCOPED_TRACE(count);
    const auto wanted = layer_of(backend::ReferenceBackend(), edited, rows);
    for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90})
      EXPECT_EQ(share_beyond(on_gpu(edited, rows, *arch), wanted, count, bound), 0) << arch->name;
    const auto other = layer_of(backend::ReferenceBackend(), without, rows);
    EXPECT_GE(share_beyond(other, wanted, count, bound), seen) << "the op makes no difference";
  }
}
// More generated rows than the two-kernel path takes, and one. Most rows have another choice or weight.
void expect_same_experts(const Edited& edited, const Edited& without) {
  expect_same(edited, without,
              {some_rows(Role::prefill, 100), some_rows(Role::decode, 8), some_rows(Role::decode, 1)},
              kRowBound, 0.75);
}
// Queries, keys and values are rounded on the way, so the bound is a layer's. A first row attends to itself.
void expect_same_attention(const Edited& edited, const Edited& without, double seen = 0.75) {
  expect_same(edited, without, {some_rows(Role::prefill, 100), some_rows(Role::decode, 8)},
              evaluate::kLayerBound, seen);
}

// ---- routers ----

Edited routed(bool with_bias, std::int64_t groups = 1, std::int64_t kept = 1, bool normalize = true) {
  Edited edited(kMixers);
  edited.each<backend::TopKExperts>([&](backend::TopKExperts& op) {
    op.score = backend::RouterScore::sigmoid;
    op.normalize = normalize;
    op.scale = 2.5;
    op.group_count = groups;
    op.groups_kept = kept;
    if (with_bias) op.choice_bias = edited.vector(edited.columns(op.logits), 0, 0.5);
  });
  return edited;
}

TEST(FamilyOps, SigmoidRouters) {
  expect_same_experts(routed(true), Edited(kMixers));
  expect_same_experts(routed(true), routed(false));
  expect_same_experts(routed(true, 1, 1, false), routed(true));
}

TEST(FamilyOps, GroupsOfExperts) {
  // Four of sixteen experts, from one group of four: few rows would choose so by themselves.
  expect_same_experts(routed(true, 4, 1), routed(true));
}

TEST(FamilyOps, BiasesOfRouters) {
  Edited edited(kMixers);
  edited.each<backend::Linear>([&](backend::Linear& op) {
    if (named({"mlp.gate.weight"})(edited.program().matrix(op.weight).matrix->name))
      op.bias = edited.vector(edited.columns(op.out), 0, 2);
  });
  expect_same_experts(edited, Edited(kMixers));
}

// ---- experts ----

// Biases of some, and a limit that many gates and ups are beyond.
struct Clamp {
  bool mxfp4 = false;
  double limit = 0.5;
  bool has_gate_up_bias = true, has_down_bias = true;
};
Edited clamped(const Clamp& clamp) {
  Edited edited(kMixers, clamp.mxfp4 ? made_mxfp4() : made());
  edited.each<backend::RunExperts>([&](backend::RunExperts& op) {
    op.glu = backend::GluKind::clamped;
    op.glu_alpha = 1.702;
    op.glu_limit = clamp.limit;
    backend::ExpertSet& set = edited.program().expert_sets[static_cast<std::size_t>(op.set.index)];
    const checkpoint::Matrix& gate = *edited.program().matrix(set.experts.front().gate).matrix;
    const auto count = static_cast<std::int64_t>(set.experts.size());
    // Drawn always, so that the others stay the same.
    const backend::VectorId of_gate = edited.vector(count * gate.rows, 0, 0.5);
    const backend::VectorId of_up = edited.vector(count * gate.rows, 0, 0.5);
    const backend::VectorId of_down = edited.vector(count * gate.columns, 0, 0.5);
    if (clamp.has_gate_up_bias) set.gate_bias = of_gate, set.up_bias = of_up;
    if (clamp.has_down_bias) set.down_bias = of_down;
  });
  return edited;
}

TEST(FamilyOps, ExpertsWithBiasesAndAClampedSwiGlu) {
  for (const bool mxfp4 : {true, false}) {
    SCOPED_TRACE(mxfp4);
    const Edited wanted = clamped({mxfp4});
    expect_same_experts(wanted, clamped({mxfp4, 7}));
    expect_same_experts(wanted, clamped({mxfp4, 0.5, false}));
    expect_same_experts(clamped({mxfp4, 0.5, true, false}), wanted);
  }
}

// ---- attention ----

// MLPs add nothing.
const Changed::Which kMlps = named({"down_proj"});

// Biases of the three projections that the attention reads.
Edited biased() {
  Edited edited(kMlps);
  edited.each<backend::Linear>([&](backend::Linear& op) {
    const std::string_view name = edited.program().matrix(op.weight).matrix->name;
    if (named({"q_proj", "k_proj", "v_proj"})(name)) op.bias = edited.vector(edited.columns(op.out), 0, 1);
  });
  return edited;
}
Edited without_norm() {
  Edited edited(kMlps);
  edited.each<backend::HeadNormRope>([](backend::HeadNormRope& op) { op.weight = {}; });
  return edited;
}

// window 0: all positions. Sinks among the scores take a good part of many rows.
Edited bounded(std::int64_t window, bool has_sinks, const Loaded& model = made()) {
  Edited edited(kMlps, model);
  edited.each<backend::Attention>([&](backend::Attention& op) {
    op.window = window;
    if (has_sinks) op.sinks = edited.vector(op.head_count, 5, 2);
  });
  return edited;
}

TEST(FamilyOps, BiasesOfQueriesKeysAndValues) { expect_same_attention(biased(), Edited(kMlps)); }
TEST(FamilyOps, BiasesOfTheOutput) {
  Edited edited(kMlps);
  edited.each<backend::Linear>([&](backend::Linear& op) {
    if (named({"o_proj"})(edited.program().matrix(op.weight).matrix->name))
      op.bias = edited.vector(edited.columns(op.out), 0, 1);
  });
  expect_same_attention(edited, Edited(kMlps));
}
// The first rows see no less than without a window, and some behind them have all their weight within it.
TEST(FamilyOps, WindowsAndSinks) {
  expect_same_attention(bounded(2, false), Edited(kMlps), 0.5);
  expect_same_attention(bounded(0, true), Edited(kMlps), 0.25);
  expect_same_attention(bounded(2, true), bounded(2, false), 0.25);
  expect_same_attention(bounded(2, true), bounded(0, true), 0.25);
}
TEST(FamilyOps, HeadsWithoutANorm) { expect_same_attention(without_norm(), Edited(kMlps)); }
TEST(FamilyOps, NormsOverAllHeads) {
  Edited edited(kMlps);
  edited.with_row_norms();
  expect_same_attention(edited, Edited(kMlps));
  expect_same_attention(edited, without_norm());
}

// ---- what is refused ----

void expect_refused(const Edited& edited, const std::string& what,
                    const std::string& first = "the GPU backend cannot run this main program") {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  expect_error(Code::unsupported_op, {first, what},
               [&] { backend::make_gpu_backend(*machine, {})->prepare(edited.program(), kOneSequence); });
}

TEST(FamilyOps, WindowsOfOtherHeadsAreRefused) {
  const MadeModel wide(made_shape(128), "bf16");
  for (const bool has_sinks : {false, true})
    expect_refused(bounded(has_sinks ? 0 : 2, has_sinks, wide.loaded), "kernels for heads of 64",
                   "with a window or sinks: heads of 128 columns");
}
TEST(FamilyOps, ClampedExpertsOfOtherFormatsAreRefused) {
  const MadeModel other(made_shape(), "modelopt");
  Edited edited(kMixers, other.loaded);
  edited.each<backend::RunExperts>(
      [](backend::RunExperts& op) { op.glu = backend::GluKind::clamped, op.glu_limit = 7; });
  expect_refused(edited, "rows for mxfp4 and bf16 weights", "these are nvfp4");
}

TEST(FamilyOps, WhatTheKernelsDoNotHaveIsRefusedByName) {
  {
    Edited edited(kMlps);
    edited.each<backend::TopKExperts>(
        [&](backend::TopKExperts& op) { op.choice_bias = edited.vector(edited.columns(op.logits), 0, 1); });
    expect_refused(edited, "(top_k_experts) has softmax scores with a bias for choosing");
  }
  {
    Edited edited(kMlps);
    edited.each<backend::TopKExperts>(
        [](backend::TopKExperts& op) { op.group_count = 4, op.groups_kept = 2; });
    expect_refused(edited, "(top_k_experts) has softmax scores with 4 groups");
  }
  {
    Edited edited(kMlps);
    edited.each<backend::Linear>([&](backend::Linear& op) {
      if (named({"lm_head", "embed_tokens"})(edited.program().matrix(op.weight).matrix->name))
        op.bias = edited.vector(edited.columns(op.out), 0, 1);
    });
    expect_refused(edited, "(linear) has a bias");
  }
  {
    Edited edited = clamped({});
    edited.each<backend::RunExperts>([](backend::RunExperts& op) { op.glu = backend::GluKind::plain; });
    expect_refused(edited, "(run_experts) has experts with biases and a plain SwiGLU");
  }
  {
    Edited edited = biased();
    edited.with_row_norms();
    expect_refused(edited, "a bias in front of a norm over all heads");
  }
  {
    Edited edited(kMlps);
    bool is_query = false;
    edited.each<backend::HeadNormRope>([&](backend::HeadNormRope& op) {
      is_query = !is_query;
      if (is_query) op.weight = {};
    });
    expect_refused(edited, "keys that are normed or turned otherwise than the queries");
  }
}

TEST(FamilyOps, WhatLatentAttentionDoesNotHaveIsRefusedByName) {
  const MadeModel latent(checkpoint::find_shape("tiny-deepseek"), "bf16");
  expect_refused(bounded(16, false, latent.loaded), "(attention) has a window over a latent cache");
  expect_refused(bounded(0, true, latent.loaded), "(attention) has sinks over a latent cache");
  Edited grown(kMlps);
  grown.each<backend::Attention>([](backend::Attention& op) { op.growth = 0.1, op.growth_positions = 64; });
  expect_refused(grown, "(attention) has a scale that grows with the position");
}

}  // namespace
}  // namespace fourfold::model
