// GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7: plain attention with biases and a partial RoPE, the first layers
// dense, then experts behind a router of sigmoids beside shared ones without a gate.
#include "base/format.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {
namespace {

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  refuse_text_but(fields, "scoring_func", "sigmoid");
  refuse_text_but(fields, "topk_method", "noaux_tc");
  read_head_sizes(fields, config);
  config.attention.bias = fields.optional_bool("attention_bias").value_or(false);
  config.attention.qk_norm =
      fields.optional_bool("use_qk_norm").value_or(false) ? QkNorm::per_head : QkNorm::none;
  read_dense_then_experts(fields, MixerKind::full_attention, config);
  if (config.moe) config.moe->sigmoid_scores = config.moe->choice_bias = true;
  read_rope(from, 0.5, config);
  fields.ignore({"ep_size", "moe_layer_freq", "num_mtp_layers", "pretraining_tp"});
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind kind) {
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  weights.mixer = b.attention(prefix + "self_attn.");
  b.mlp(prefix + "mlp.", kind, weights);
  return weights;
}

ModelWeights bind(Binder& b) { return b.layers_and_nextn("", bind_layer); }

constexpr std::string_view kTypes[] = {"glm4_moe"};

}  // namespace

extern const FamilyMaker kGlm4MoeMaker;  // make.cpp
extern constinit const Family kGlm4Moe{"GLM-4 MoE", kTypes, read_config, bind, &kGlm4MoeMaker};

}  // namespace fourfold::checkpoint
