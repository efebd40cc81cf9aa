// GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7: plain attention with biases and a partial RoPE, the first layers
// dense, then experts behind a router of sigmoids beside shared ones without a gate.
#include "base/format.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {
namespace {

void read_moe(FieldReader& fields, ModelConfig& config) {
  MoeConfig moe;
  moe.expert_count = fields.required_int("n_routed_experts", kExperts);
  moe.experts_per_token = fields.required_int("num_experts_per_tok", kExperts);
  moe.intermediate_size = fields.required_int("moe_intermediate_size", kWidth);
  // Several shared experts are one that is as wide as all of them.
  const std::int64_t shared_count = fields.required_int("n_shared_experts", {0, kExperts.most});
  moe.shared_intermediate_size = shared_count * moe.intermediate_size;
  moe.normalize_weights = fields.optional_bool("norm_topk_prob").value_or(true);
  moe.sigmoid_scores = moe.choice_bias = true;
  moe.group_count = fields.required_int("n_group", kExperts);
  moe.groups_kept = fields.required_int("topk_group", kExperts);
  moe.weight_scale = fields.required_real("routed_scaling_factor", {0, 1e6});
  check_experts_per_token(fields, "n_routed_experts", moe);
  check_groups(fields, moe);
  config.moe = moe;
}

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  refuse_text_but(fields, "scoring_func", "sigmoid");
  refuse_text_but(fields, "topk_method", "noaux_tc");
  read_head_sizes(fields, config);
  config.attention.bias = fields.optional_bool("attention_bias").value_or(false);
  config.attention.qk_norm =
      fields.optional_bool("use_qk_norm").value_or(false) ? QkNorm::per_head : QkNorm::none;
  const std::int64_t layer_count = fields.required_int("num_hidden_layers", kLayers);
  const std::int64_t dense_count = fields.required_int("first_k_dense_replace", {0, kLayers.most});
  for (std::int64_t i = 0; i < layer_count; ++i)
    config.layers.push_back({MixerKind::full_attention, i < dense_count ? MlpKind::dense : MlpKind::experts});
  const std::int64_t dense_size = fields.required_int("intermediate_size", kWidth);
  if (dense_count > 0) config.dense_intermediate_size = dense_size;
  config.mtp_layer_count = fields.optional_int("num_nextn_predict_layers", {0, 16}).value_or(0);
  // The MTP layer has experts even where no other has.
  if (dense_count < layer_count || config.mtp_layer_count > 0) read_moe(fields, config);
  read_rope(from, 0.5, config);
  fields.ignore({"ep_size", "moe_layer_freq", "num_mtp_layers", "pretraining_tp"});
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind kind) {
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  weights.mixer = b.attention(prefix + "self_attn.");
  if (kind == MlpKind::dense) {
    weights.mlp = b.gated_mlp(prefix + "mlp.", b.config().dense_intermediate_size);
    return weights;
  }
  const MoeConfig& sizes = *b.config().moe;
  MoeWeights moe;
  moe.router = b.matrix(prefix + "mlp.gate", sizes.expert_count, b.config().hidden_size);
  moe.choice_bias = b.vector(prefix + "mlp.gate.e_score_correction_bias", sizes.expert_count);
  moe.experts = b.routed_experts(prefix + "mlp.");
  if (sizes.shared_intermediate_size > 0)
    moe.shared = b.gated_mlp(prefix + "mlp.shared_experts.", sizes.shared_intermediate_size);
  weights.mlp = std::move(moe);
  return weights;
}

// The layer behind the last. Its copies of embedding and head are those of the model, and not read again.
MtpWeights bind_mtp(Binder& b, const std::string& prefix) {
  const std::int64_t hidden = b.config().hidden_size;
  MtpWeights weights;
  weights.embedding_norm = b.vector(prefix + "enorm.weight", hidden);
  weights.hidden_norm = b.vector(prefix + "hnorm.weight", hidden);
  weights.combine = b.matrix(prefix + "eh_proj", hidden, 2 * hidden);
  weights.layers.push_back(bind_layer(b, prefix, MlpKind::experts));
  weights.final_norm = b.vector(prefix + "shared_head.norm.weight", hidden);
  b.pool().skip_prefix(prefix + "embed_tokens.");
  b.pool().skip_prefix(prefix + "shared_head.head.");
  return weights;
}

ModelWeights bind(Binder& b) {
  const ModelConfig& config = b.config();
  ModelWeights weights;
  weights.embedding = b.matrix("model.embed_tokens", config.vocab_size, config.hidden_size);
  for (std::int64_t i = 0; i < config.layer_count(); ++i)
    weights.layers.push_back(bind_layer(b, fourfold::format("model.layers.{}.", i),
                                        config.layers[static_cast<std::size_t>(i)].mlp));
  weights.final_norm = b.vector("model.norm.weight", config.hidden_size);
  b.head(weights);
  const std::string next = fourfold::format("model.layers.{}.", config.layer_count());
  if (config.moe && b.pool().has_prefix(next + "eh_proj.")) weights.mtp = bind_mtp(b, next);
  return weights;
}

constexpr std::string_view kTypes[] = {"glm4_moe"};

}  // namespace

constinit const Family kGlm4Moe{"GLM-4 MoE", kTypes, read_config, bind};

}  // namespace fourfold::checkpoint
