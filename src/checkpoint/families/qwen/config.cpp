// config.json of Qwen3.5 (nested or flat, with experts or dense), Qwen3-Next and Qwen3-MoE.
#include "checkpoint/families/qwen/qwen.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint::qwen {
namespace {

void read_delta(FieldReader& fields, ModelConfig& config) {
  DeltaConfig delta;
  delta.key_head_count = fields.required_int("linear_num_key_heads", kHeads);
  delta.value_head_count = fields.required_int("linear_num_value_heads", kHeads);
  delta.key_head_dim = fields.required_int("linear_key_head_dim", kHeadDim);
  delta.value_head_dim = fields.required_int("linear_value_head_dim", kHeadDim);
  delta.conv_taps = fields.required_int("linear_conv_kernel_dim", {1, 16});
  if (delta.value_head_count % delta.key_head_count != 0)
    fields.problem("contradictory", "linear_num_value_heads",
                   fourfold::format("= {} is no multiple of linear_num_key_heads = {}",
                                    delta.value_head_count, delta.key_head_count));
  const std::string gate = fields.optional_text("output_gate_type").value_or("swish");
  if (gate == "sigmoid")
    delta.output_gate = DeltaGate::sigmoid;
  else if (gate != "swish" && gate != "silu")
    fields.unsupported("output_gate_type", gate, "swish, silu, sigmoid");
  config.delta = delta;
}

void read_moe(FieldReader& fields, ModelConfig& config) {
  MoeConfig moe;
  moe.expert_count = fields.required_int("num_experts", kExperts);
  moe.experts_per_token = fields.required_int("num_experts_per_tok", kExperts);
  moe.intermediate_size = fields.required_int("moe_intermediate_size", kWidth);
  if (config.family != &kQwen3Moe)
    moe.shared_intermediate_size = fields.required_int("shared_expert_intermediate_size", {0, kWidth.most});
  moe.shared_gate = moe.shared_intermediate_size > 0;
  // Qwen3-MoE reads an absent norm_topk_prob as false, the others never look and always renormalise.
  moe.normalize_weights = fields.optional_bool("norm_topk_prob").value_or(config.family != &kQwen3Moe);
  check_experts_per_token(fields, "num_experts", moe);
  config.moe = moe;
}

// The list when there is one; otherwise every full_attention_interval-th layer is full attention, the rest
// linear.
std::vector<MixerKind> read_mixers(FieldReader& fields, const Family* family, std::int64_t layer_count) {
  const auto linear_unless = [&](std::int64_t interval) {
    std::vector<MixerKind> mixers;
    for (std::int64_t i = 0; i < layer_count; ++i)
      mixers.push_back((i + 1) % interval == 0 ? MixerKind::full_attention : MixerKind::linear_attention);
    return mixers;
  };
  if (!fields.has("layer_types"))
    return linear_unless(family == &kQwen3Moe ? 1 : fields.required_int("full_attention_interval", kLayers));
  std::vector<MixerKind> mixers;
  for (const std::string& type : fields.optional_texts("layer_types")) {
    if (type != "full_attention" && type != "linear_attention")
      fields.unsupported("layer_types", type, "full_attention, linear_attention");
    mixers.push_back(type == "full_attention" ? MixerKind::full_attention : MixerKind::linear_attention);
  }
  if (static_cast<std::int64_t>(mixers.size()) == layer_count) return mixers;
  fields.problem("contradictory", "layer_types",
                 fourfold::format("has {} entries for num_hidden_layers = {}", mixers.size(), layer_count));
  return linear_unless(1);
}

void read_layers(FieldReader& fields, bool has_experts, ModelConfig& config) {
  const std::int64_t layer_count = fields.required_int("num_hidden_layers", kLayers);
  const std::vector<MixerKind> mixers = read_mixers(fields, config.family, layer_count);
  const auto dense_layers = fields.optional_ints("mlp_only_layers", {0, kLayers.most});
  const std::int64_t sparse_step = fields.optional_int("decoder_sparse_step", kLayers).value_or(1);
  bool any_dense = false;
  bool any_experts = false;
  bool any_linear = false;
  for (std::int64_t i = 0; i < layer_count; ++i) {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    const bool experts = has_experts && !listed && (i + 1) % sparse_step == 0;
    const MixerKind mixer = mixers[static_cast<std::size_t>(i)];
    config.layers.push_back({mixer, experts ? MlpKind::experts : MlpKind::dense});
    (experts ? any_experts : any_dense) = true;
    any_linear = any_linear || mixer == MixerKind::linear_attention;
  }
  if (any_dense) config.dense_intermediate_size = fields.required_int("intermediate_size", kWidth);
  if (any_experts) read_moe(fields, config);
  if (any_linear) read_delta(fields, config);
}

}  // namespace

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  refuse_if_true(fields,
                 {"attention_bias", "use_sliding_window", "mtp_use_dedicated_embeddings", "qkv_bias"});
  const bool is_qwen3_moe = config.family == &kQwen3Moe;
  config.norm_adds_one = !is_qwen3_moe;
  read_head_sizes(fields, config);
  config.attention.output_gate = fields.optional_bool("attn_output_gate").value_or(!is_qwen3_moe);
  const bool is_dense = from.model_type == "qwen3_5" || from.model_type == "qwen3_5_text";
  read_layers(fields, !is_dense, config);
  read_rope(from, is_qwen3_moe ? 1.0 : 0.25, config);
  config.mtp_layer_count = fields.optional_int("mtp_num_hidden_layers", {0, 16}).value_or(0);
  fields.ignore({"full_attention_interval", "intermediate_size", "layer_types", "mamba_ssm_dtype",
                 "max_window_layers", "sliding_window"});
}

}  // namespace fourfold::checkpoint::qwen
