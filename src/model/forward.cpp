#include "model/forward.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/error.h"
#include "model/layer.h"
#include "model/rope.h"

namespace fourfold::model {

using backend::ValueId;

namespace {

void build_main(Builder& b, LayerBuilder& layers, const checkpoint::ModelConfig& config,
                const checkpoint::ModelWeights& weights) {
  backend::Program& program = b.program();
  b.begin(backend::Pass::main);
  ValueId x = b.embed("embedding", weights.embedding);
  program.layer_outputs.push_back(x);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    x = layers.layer(format("layers.{}.", i), x, weights.layers[i], config.layers[i].window);
    program.layer_outputs.push_back(x);
  }
  program.final_hidden = b.rms_norm("final_norm", x, weights.final_norm, config);
  if (weights.mtp) b.push(backend::KeepHidden{program.final_hidden});
  program.main_logits = b.logits("", program.final_hidden, weights.head);
}

// Row i takes the hidden state of position i (after the final norm, or a draft pass's own output) and the
// token at i + 1, and drafts the token at i + 2. Embedding first in the concatenation.
void build_draft(Builder& b, LayerBuilder& layers, const checkpoint::ModelConfig& config,
                 const checkpoint::ModelWeights& weights) {
  const checkpoint::MtpWeights& mtp = *weights.mtp;
  backend::Program& program = b.program();
  b.begin(backend::Pass::draft);
  const ValueId token = b.embed("mtp.embedding", weights.embedding);
  const auto hidden = b.value("mtp.hidden", config.hidden_size);
  b.push(backend::TakeHidden{hidden});
  const auto both = b.value("mtp.both", 2 * config.hidden_size);
  b.push(backend::Concat{b.rms_norm("mtp.embedding_norm", token, mtp.embedding_norm, config),
                         b.rms_norm("mtp.hidden_norm", hidden, mtp.hidden_norm, config), both});
  ValueId x = b.linear("mtp.combined", both, mtp.combine);
  for (std::size_t i = 0; i < mtp.layers.size(); ++i)
    x = layers.layer(format("mtp.layers.{}.", i), x, mtp.layers[i]);
  program.draft_hidden = b.rms_norm("mtp.final_norm", x, mtp.final_norm, config);
  b.push(backend::KeepHidden{program.draft_hidden});
  program.draft_logits = b.logits("mtp.", program.draft_hidden, weights.head);
}

}  // namespace

namespace {

// A row is quantised once for gate and up, and their result for down before it leaves the kernel: all three
// have scales, gate and up the same.
bool takes_fp4(const backend::Program& program, const backend::ExpertMatrices& mlp) {
  const auto scale = [&](backend::MatrixId id) -> std::optional<Nvfp4InputScale> {
    const backend::MatrixUse& use = program.matrix(id);
    if (!backend::quantises(use.input)) return std::nullopt;
    return std::get<checkpoint::Nvfp4Storage>(use.matrix->storage).input_scale;
  };
  const auto gate = scale(mlp.gate), up = scale(mlp.up);
  return gate && up && scale(mlp.down) && *gate == *up;
}

// w4a4_prefill: an MLP takes FP4 whole or not at all, and so do all routed experts of a layer.
void keep_fp4_whole(backend::Program& program, std::span<const backend::ExpertMatrices> gated_mlps) {
  const auto keep_all_or_none = [&](std::span<const backend::ExpertMatrices> mlps) {
    if (std::ranges::all_of(mlps, [&](const auto& mlp) { return takes_fp4(program, mlp); })) return;
    for (const backend::ExpertMatrices& mlp : mlps)
      for (const backend::MatrixId id : {mlp.gate, mlp.up, mlp.down})
        program.matrices[static_cast<std::size_t>(id.index)].input = backend::InputFormat::bf16;
  };
  for (const backend::ExpertSet& set : program.expert_sets) keep_all_or_none(set.experts);
  for (const backend::ExpertMatrices& mlp : gated_mlps) keep_all_or_none({&mlp, 1});
}

// With a factor for the matrix or for each row, which kernels multiply in behind a sum. Blocks of columns
// have theirs inside it: such matrices are widened.
bool is_stored_fp8(const checkpoint::Matrix& matrix) {
  const auto* stored = std::get_if<checkpoint::Fp8Storage>(&matrix.storage);
  return stored != nullptr && !std::holds_alternative<checkpoint::Fp8BlockScales>(stored->scale);
}

backend::Program build_part(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                            Activations activations, backend::PartOf part, std::int64_t first_expert) {
  backend::Program program;
  program.part = part;
  program.hidden_size = config.hidden_size;
  program.vocab_size = config.vocab_size;
  program.position_limit = config.position_limit;
  program.ropes.push_back(make_rope(config.rope));
  Builder builder(program, activations);
  LayerBuilder layers(builder, config, backend::RopeId{0}, first_expert);
  build_main(builder, layers, config, weights);
  if (weights.mtp) {
    if (weights.mtp->layers.size() != 1)
      fail_with_hint(Code::unsupported_model, "use a checkpoint with one MTP layer",
                     "the checkpoint has {} MTP layers; drafting applies one again and again",
                     weights.mtp->layers.size());
    build_draft(builder, layers, config, weights);
  }
  if (activations == Activations::w4a4_prefill) keep_fp4_whole(program, builder.gated_mlps());
  if (activations == Activations::w8a8) take_fp8_rows(program, is_stored_fp8);
  return program;
}

}  // namespace

backend::Program build_program(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                               Activations activations) {
  return build_part(config, weights, activations, {}, 0);
}

backend::Program build_program(const ModelShard& part, Activations activations) {
  return build_part(part.config, part.weights, activations, part.part, part.first_expert);
}

void take_fp8_rows(backend::Program& program, const std::function<bool(const checkpoint::Matrix&)>& is_fp8) {
  for (const backend::Pass pass : {backend::Pass::main, backend::Pass::draft}) {
    std::vector<bool> is_joined(program.values.size());  // by Concat: an MTP layer's two inputs
    for (const backend::Op& op : program.ops(pass)) {
      if (const auto* both = std::get_if<backend::Concat>(&op))
        is_joined[static_cast<std::size_t>(both->out.index)] = true;
      const auto* linear = std::get_if<backend::Linear>(&op);
      if (linear == nullptr || is_joined[static_cast<std::size_t>(linear->in.index)] ||
          program.value(linear->in).rows != backend::RowSet::tokens)
        continue;
      backend::MatrixUse& use = program.matrices[static_cast<std::size_t>(linear->weight.index)];
      if (is_fp8(*use.matrix)) use.input = backend::InputFormat::fp8_prefill;
    }
  }
}

}  // namespace fourfold::model
