// MiniMax-M2, M2.1 and M2.5: plain attention whose queries and keys are normed over all heads together, a
// partial RoPE, and in every layer experts behind a router of sigmoids, none of them shared.
#include <algorithm>

#include "base/format.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {
namespace {

// What the config format can say and no release does.
void refuse_unused(FieldReader& fields) {
  refuse_activations_but_silu(fields);
  refuse_text_but(fields, "scoring_func", "sigmoid");
  refuse_text_but(fields, "qk_norm_type", "per_layer");
  if (!fields.optional_bool("use_qk_norm").value_or(true)) fields.unsupported("use_qk_norm", "false", "true");
  if (fields.optional_int("shared_intermediate_size", {0, kWidth.most}).value_or(0) > 0)
    fields.unsupported("shared_intermediate_size", "above 0", "0");
  if (fields.has("sliding_window")) fields.unsupported("sliding_window", "a number", "null");
  if (!std::ranges::all_of(fields.optional_ints("attn_type_list", {0, 16}), [](auto x) { return x == 1; }))
    fields.unsupported("attn_type_list", "another number", "1, full attention");
  for (const char* name :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"})
    if (fields.optional_real(name, {0, 1e6}).value_or(1) != 1)
      fields.unsupported(name, "another number", "1");
  // Announced by the releases, which have no tensors for it.
  fields.ignore({"mtp_transformer_layers", "num_mtp_modules", "sliding_window", "use_mtp",
                 "mlp_intermediate_size", "shared_moe_mode", "shared_moe_mode_type"});
}

// The releases have rotary_dim beside the head's size; transformers writes partial_rotary_factor.
double rotary_factor(FieldReader& fields, const AttentionConfig& attention) {
  const auto dims = fields.optional_int("rotary_dim", {2, kHeadDim.most});
  if (dims && *dims > attention.head_dim)
    fields.problem("contradictory", "rotary_dim",
                   fourfold::format("= {} is more than head_dim = {}", *dims, attention.head_dim));
  return dims ? static_cast<double>(*dims) / static_cast<double>(attention.head_dim) : 1.0;
}

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_unused(fields);
  read_head_sizes(fields, config);
  config.attention.qk_norm = QkNorm::all_heads;
  const std::int64_t layer_count = fields.required_int("num_hidden_layers", kLayers);
  config.layers.assign(static_cast<std::size_t>(layer_count), {MixerKind::full_attention, MlpKind::experts});
  MoeConfig moe;
  moe.expert_count = fields.required_int("num_local_experts", kExperts);
  moe.experts_per_token = fields.required_int("num_experts_per_tok", kExperts);
  moe.intermediate_size = fields.required_int("intermediate_size", kWidth);
  moe.sigmoid_scores = true;
  moe.choice_bias = fields.optional_bool("use_routing_bias").value_or(true);
  check_experts_per_token(fields, "num_local_experts", moe);
  config.moe = moe;
  read_rope(from, rotary_factor(fields, config.attention), config);
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind) {
  const MoeConfig& sizes = *b.config().moe;
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  weights.mixer = b.attention(prefix + "self_attn.");
  const std::string block = prefix + "block_sparse_moe.";
  MoeWeights moe;
  moe.router = b.matrix(block + "gate", sizes.expert_count, b.config().hidden_size);
  if (sizes.choice_bias) moe.choice_bias = b.vector(block + "e_score_correction_bias", sizes.expert_count);
  moe.experts = b.routed_experts(block + "experts.", {.gate = "w1", .up = "w3", .down = "w2"});
  weights.mlp = std::move(moe);
  return weights;
}

ModelWeights bind(Binder& b) { return b.layers("", bind_layer); }

constexpr std::string_view kTypes[] = {"minimax_m2"};

}  // namespace

extern const FamilyMaker kMiniMaxM2Maker;  // make.cpp
extern constinit const Family kMiniMaxM2{"MiniMax-M2", kTypes, read_config, bind, &kMiniMaxM2Maker};

}  // namespace fourfold::checkpoint
