#include "model/qwen35/forward.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "model/qwen35/layer.h"
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
    x = layers.layer(format("layers.{}.", i), x, weights.layers[i]);
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

// A layer quantises a row once for the gate and up of an expert: all experts must have scales, gate and up
// the same.
bool takes_fp4(const backend::Program& program, const backend::ExpertSet& set) {
  const auto scale = [&](backend::MatrixId id) -> std::optional<Nvfp4InputScale> {
    const backend::MatrixUse& use = program.matrix(id);
    if (!backend::quantises(use.input)) return std::nullopt;
    return std::get<checkpoint::Nvfp4Storage>(use.matrix->storage).input_scale;
  };
  return std::ranges::all_of(set.experts, [&](const backend::ExpertMatrices& expert) {
    const auto gate = scale(expert.gate), up = scale(expert.up);
    return gate && up && scale(expert.down) && gate->scale == up->scale && gate->inverse == up->inverse;
  });
}

// w4a4_prefill is for the routed experts of a layer, all or none: what else has an input scale takes bf16.
void keep_fp4_for_experts(backend::Program& program) {
  std::vector<bool> keeps(program.matrices.size());
  for (const backend::ExpertSet& set : program.expert_sets)
    if (takes_fp4(program, set))
      for (const backend::ExpertMatrices& expert : set.experts)
        for (const backend::MatrixId id : {expert.gate, expert.up, expert.down})
          keeps[static_cast<std::size_t>(id.index)] = true;
  for (std::size_t i = 0; i < keeps.size(); ++i)
    if (!keeps[i]) program.matrices[i].input = backend::InputFormat::bf16;
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
  if (activations == Activations::w4a4_prefill) keep_fp4_for_experts(program);
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

}  // namespace fourfold::model
