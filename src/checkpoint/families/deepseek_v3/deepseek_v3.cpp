// DeepSeek-V3, V3.1 and R1, Kimi-K2, and Mistral-Small-4: latent attention, the first layers dense, then
// experts beside shared ones without a gate. DeepSeek's router has sigmoids, a bias and groups, Mistral's a
// softmax; Mistral's attention has a scale that grows with the position.
#include "base/format.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {

extern const FamilyMaker kDeepseekV3Maker, kMistral4Maker;  // make.cpp
extern const Family kMistral4;

namespace {

void read_latent(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_if_true(fields, {"attention_bias"});
  LatentConfig latent;
  config.attention.head_count = fields.required_int("num_attention_heads", kHeads);
  // null, and absent, where queries are made of the input itself.
  latent.query_rank = fields.optional_int("q_lora_rank", kWidth).value_or(0);
  latent.latent_dim = fields.required_int("kv_lora_rank", kHeadDim);
  latent.plain_dim = fields.required_int("qk_nope_head_dim", kHeadDim);
  latent.turned_dim = fields.required_int("qk_rope_head_dim", kHeadDim);
  latent.value_dim = fields.required_int("v_head_dim", kHeadDim);
  latent.interleaved = fields.optional_bool("rope_interleave").value_or(true);
  const bool may_grow = config.family == &kMistral4;
  // transformers calls what RoPE turns DeepSeek's head, and a part of Mistral's.
  config.attention.head_dim = latent.turned_dim + (may_grow ? latent.plain_dim : 0);
  const double factor =
      static_cast<double>(latent.turned_dim) / static_cast<double>(config.attention.head_dim);
  read_rope(from, factor, config, may_grow ? &latent.growth : nullptr);
  if (config.rope.rotary_dims != latent.turned_dim)
    fields.problem(
        "contradictory", "qk_rope_head_dim",
        fourfold::format("= {}, but RoPE turns {} columns", latent.turned_dim, config.rope.rotary_dims));
  if (latent.growth > 0 && !config.rope.yarn)
    fields.problem("contradictory", "llama_4_scaling_beta", "is there, but RoPE is not yarn");
  if (latent.growth > 0 && config.rope.yarn) latent.growth_positions = config.rope.yarn->original_positions;
  config.attention.kv_head_count = 1;
  config.attention.head_dim = latent.latent_dim + latent.turned_dim;
  config.attention.qk_norm = QkNorm::none;
  config.latent = latent;
  // The sizes of expanded keys, which follow from the others.
  fields.ignore({"head_dim", "num_key_value_heads", "qk_head_dim"});
}

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  if (fields.optional_int("moe_layer_freq", kLayers).value_or(1) != 1)
    fields.unsupported("moe_layer_freq", "another number", "1");
  read_latent(from, config);
  read_dense_then_experts(fields, MixerKind::latent_attention, config);
  fields.ignore({"aux_loss_alpha", "ep_size", "num_mtp_layers", "pretraining_tp", "seq_aux"});
}

void read_deepseek_config(ConfigFields& from, ModelConfig& config) {
  refuse_text_but(from.fields, "scoring_func", "sigmoid");
  refuse_text_but(from.fields, "topk_method", "noaux_tc");
  read_config(from, config);
  if (config.moe) config.moe->sigmoid_scores = config.moe->choice_bias = true;
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind kind) {
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  weights.mixer = b.latent_attention(prefix + "self_attn.");
  b.mlp(prefix + "mlp.", kind, weights);
  return weights;
}

// Models that see have the text model one level down.
ModelWeights bind(Binder& b) {
  const bool is_wrapped = b.pool().has_prefix("language_model.");
  for (const char* part : {"vision_tower.", "multi_modal_projector."})
    if (is_wrapped) b.pool().skip_prefix(part);
  return b.layers_and_nextn(is_wrapped ? "language_model." : "", bind_layer);
}

constexpr std::string_view kTypes[] = {"deepseek_v3", "kimi_k2"};
constexpr std::string_view kMistralTypes[] = {"mistral4"};

}  // namespace

extern constinit const Family kDeepseekV3{"DeepSeek-V3", kTypes, read_deepseek_config, bind,
                                          &kDeepseekV3Maker};
extern constinit const Family kMistral4{"Mistral-Small-4", kMistralTypes, read_config, bind, &kMistral4Maker};

}  // namespace fourfold::checkpoint
