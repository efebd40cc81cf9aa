// What other families ask of the GPU beyond Qwen's: routers of sigmoid scores, biases on queries, keys and
// values, heads without a norm, norms over all heads. A model of make-model gets such ops, and its first
// layer must give the reference's numbers; a reference without the op must be noticed.
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
using checkpoint::TempFolder;

// One model for all tests: plain attention with a norm for each head, experts without a shared one. Scores of
// attention have a deviation that makes it peaked: what queries and keys are shows in every row.
const Loaded& made() {
  static const TempFolder temp;
  static const Loaded loaded = [] {
    checkpoint::OutputFolder folder(temp.path() / "model");
    checkpoint::RandomModelOptions options;
    options.shape = checkpoint::find_shape("tiny-qwen3-moe");
    options.shape.layers = 1;
    options.shape.head_dim = 64;
    options.shape.experts = 16;
    options.shape.experts_per_token = 4;
    options.shape.head_norm = 2.25;
    options.shape.attention_gain = 4;
    options.scheme = checkpoint::scheme_named("bf16");
    options.seed = 1;
    checkpoint::write_random_model(folder, options, {0, 1});
    folder.publish();
    return Loaded(temp.path() / "model");
  }();
  return loaded;
}

// The program with other ops in every layer.
class Edited {
 public:
  explicit Edited(const Changed::Which& is_zero)
      : changed_(made(), Activations::w4a16, is_zero), program_(changed_.program()) {}
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
void expect_same_attention(const Edited& edited, const Edited& without) {
  expect_same(edited, without, {some_rows(Role::prefill, 100), some_rows(Role::decode, 8)},
              evaluate::kLayerBound, 0.75);
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

TEST(FamilyOps, BiasesOfQueriesKeysAndValues) { expect_same_attention(biased(), Edited(kMlps)); }
TEST(FamilyOps, HeadsWithoutANorm) { expect_same_attention(without_norm(), Edited(kMlps)); }
TEST(FamilyOps, NormsOverAllHeads) {
  Edited edited(kMlps);
  edited.with_row_norms();
  expect_same_attention(edited, Edited(kMlps));
  expect_same_attention(edited, without_norm());
}

// ---- what is refused ----

void expect_refused(const Edited& edited, const std::string& what) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  expect_error(Code::unsupported_op, {"the GPU backend cannot run this main program", what},
               [&] { backend::make_gpu_backend(*machine, {})->prepare(edited.program(), kOneSequence); });
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
  for (const char* matrix : {"o_proj", "mlp.gate.weight"}) {
    Edited edited(kMlps);
    edited.each<backend::Linear>([&](backend::Linear& op) {
      if (named({matrix})(edited.program().matrix(op.weight).matrix->name))
        op.bias = edited.vector(edited.columns(op.out), 0, 1);
    });
    expect_refused(edited, "(linear) has a bias");
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

}  // namespace
}  // namespace fourfold::model
