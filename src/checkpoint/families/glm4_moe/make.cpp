// Models of GLM-4 MoE to be made: tensors and config.json.
#include "base/format.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

using Fill = PlannedTensor::Fill;

void add_attention(TensorList& list, const ModelShape& s, const std::string& prefix) {
  list.attention(prefix);
  if (!s.qk_norm) return;
  list.norm(prefix + "q_norm.weight", s.head_dim);
  list.norm(prefix + "k_norm.weight", s.head_dim);
}

void add_layer(TensorList& list, const ModelShape& s, const std::string& prefix, bool dense) {
  list.norm(prefix + "input_layernorm.weight", s.hidden);
  add_attention(list, s, prefix + "self_attn.");
  list.norm(prefix + "post_attention_layernorm.weight", s.hidden);
  if (dense) return list.gated_mlp(prefix + "mlp.", s.dense_intermediate);
  list.linear(prefix + "mlp.gate", s.experts, s.hidden, 3);  // a sharp router
  // Large enough to change who is chosen: scores are between 0 and 1.
  list.add(prefix + "mlp.gate.e_score_correction_bias", {s.experts}, Fill::normal, 0.3, 0);
  for (std::int64_t e = 0; e < s.experts; ++e)
    list.gated_mlp(fourfold::format("{}mlp.experts.{}.", prefix, e), s.intermediate);
  if (s.shared > 0) list.gated_mlp(prefix + "mlp.shared_experts.", s.shared);
}

std::vector<PlannedTensor> plan(const ModelShape& s, const StorageScheme&) {
  TensorList list(s, 0);
  list.add("model.embed_tokens.weight", {s.vocab, s.hidden}, Fill::normal, 1, 0);
  for (std::int64_t i = 0; i < s.layers; ++i)
    add_layer(list, s, fourfold::format("model.layers.{}.", i), i < s.dense_layers);
  list.norm("model.norm.weight", s.hidden);
  list.linear("lm_head", s.vocab, s.hidden, 3);
  if (!s.mtp) return list.take();
  const std::string prefix = fourfold::format("model.layers.{}.", s.layers);
  list.norm(prefix + "enorm.weight", s.hidden);
  list.norm(prefix + "hnorm.weight", s.hidden);
  list.linear(prefix + "eh_proj", s.hidden, 2 * s.hidden);
  add_layer(list, s, prefix, false);
  list.norm(prefix + "shared_head.norm.weight", s.hidden);
  return list.take();
}

void write_config(JsonWriter& json, const ModelShape& s, const TokenIds& ids) {
  json.key("architectures").begin_array().value("Glm4MoeForCausalLM").end_array();
  json.member("model_type", "glm4_moe").member("dtype", "bfloat16");
  json.member("vocab_size", s.vocab).member("hidden_size", s.hidden);
  json.member("num_hidden_layers", s.layers).member("num_attention_heads", s.heads);
  json.member("num_key_value_heads", s.kv_heads).member("head_dim", s.head_dim);
  json.member("hidden_act", "silu").member("rms_norm_eps", 1e-5).member("attention_bias", s.attention_bias);
  json.member("use_qk_norm", s.qk_norm).member("max_position_embeddings", s.positions);
  json.member("tie_word_embeddings", false).member("eos_token_id", ids.end_of_text);
  json.member("first_k_dense_replace", s.dense_layers);
  json.member("intermediate_size", s.dense_intermediate > 0 ? s.dense_intermediate : s.intermediate);
  json.member("n_routed_experts", s.experts).member("num_experts_per_tok", s.experts_per_token);
  json.member("moe_intermediate_size", s.intermediate).member("n_shared_experts", s.shared / s.intermediate);
  json.member("n_group", s.groups).member("topk_group", s.groups_kept).member("norm_topk_prob", true);
  json.member("routed_scaling_factor", s.routed_scale).member("rope_theta", s.theta);
  json.member("rope_scaling", nullptr).member("partial_rotary_factor", 0.5);
  json.member("num_nextn_predict_layers", s.mtp ? 1 : 0);
}

constexpr ModelShape kTiny[] = {
    {.name = "tiny-glm",
     .what = "GLM-4.5-Air, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 3,
     .full_interval = 1,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 1e6,
     .dense_layers = 1,
     .dense_intermediate = 192,
     .attention_bias = true,
     .qk_norm = false},
    // As GLM-4.7 is otherwise, and with numbers that are no powers of two.
    {.name = "tiny-glm-odd",
     .what = "GLM-4.7 with groups of experts and odd sizes, for tests",
     .vocab = 502,
     .hidden = 192,
     .layers = 3,
     .full_interval = 1,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 12,
     .experts_per_token = 3,
     .intermediate = 128,
     .shared = 256,
     .positions = 4096,
     .theta = 1e6,
     .dense_layers = 1,
     .dense_intermediate = 320,
     .attention_bias = true,
     .groups = 4,
     .groups_kept = 2,
     .routed_scale = 2.5},
};

constexpr ModelShape kPublished[] = {
    {.name = "glm-4.5-air",
     .what = "GLM-4.5-Air",
     .vocab = 151552,
     .hidden = 4096,
     .layers = 46,
     .full_interval = 1,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .experts = 128,
     .experts_per_token = 8,
     .intermediate = 1408,
     .shared = 1408,
     .positions = 131072,
     .theta = 1e6,
     .dense_layers = 1,
     .dense_intermediate = 10944,
     .attention_bias = true,
     .qk_norm = false},
    {.name = "glm-4.7",
     .what = "GLM-4.7, and 4.5 and 4.6 of the same size",
     .vocab = 151552,
     .hidden = 5120,
     .layers = 92,
     .full_interval = 1,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .experts = 160,
     .experts_per_token = 8,
     .intermediate = 1536,
     .shared = 1536,
     .positions = 202752,
     .theta = 1e6,
     .dense_layers = 3,
     .dense_intermediate = 12288,
     .attention_bias = true,
     .routed_scale = 2.5},
};

}  // namespace

extern constinit const FamilyMaker kGlm4MoeMaker{plan, write_config, kTiny, kPublished};

}  // namespace fourfold::checkpoint
