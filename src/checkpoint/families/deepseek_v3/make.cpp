// Models of DeepSeek-V3, Kimi-K2 and Mistral-Small-4 to be made: tensors and config.json.
#include "base/format.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

using Fill = PlannedTensor::Fill;

void add_attention(TensorList& list, const ModelShape& s, const std::string& prefix) {
  const LatentShape& a = s.latent;
  const std::int64_t query_width = s.heads * (a.plain_dim + a.turned_dim);
  if (a.query_rank > 0) {
    list.linear(prefix + "q_a_proj", a.query_rank, s.hidden);
    list.norm(prefix + "q_a_layernorm.weight", a.query_rank);
    list.linear(prefix + "q_b_proj", query_width, a.query_rank);
  } else {
    list.linear(prefix + "q_proj", query_width, s.hidden);
  }
  list.linear(prefix + "kv_a_proj_with_mqa", a.latent_dim + a.turned_dim, s.hidden);
  list.norm(prefix + "kv_a_layernorm.weight", a.latent_dim);
  list.linear(prefix + "kv_b_proj", s.heads * (a.plain_dim + a.value_dim), a.latent_dim);
  list.linear(prefix + "o_proj", s.hidden, s.heads * a.value_dim);
}

void add_layer(TensorList& list, const ModelShape& s, const std::string& prefix, bool dense, bool fused) {
  list.norm(prefix + "input_layernorm.weight", s.hidden);
  add_attention(list, s, prefix + "self_attn.");
  list.norm(prefix + "post_attention_layernorm.weight", s.hidden);
  if (dense) return list.gated_mlp(prefix + "mlp.", s.dense_intermediate);
  list.linear(prefix + "mlp.gate", s.experts, s.hidden, 3);  // a sharp router
  // Large enough to change who is chosen: scores are between 0 and 1.
  if (s.family != &kMistral4)
    list.add(prefix + "mlp.gate.e_score_correction_bias", {s.experts}, Fill::normal, 0.3, 0);
  if (fused) {
    list.add(prefix + "mlp.experts.gate_up_proj", {s.experts, 2 * s.intermediate, s.hidden}, Fill::linear, 1,
             0);
    list.add(prefix + "mlp.experts.down_proj", {s.experts, s.hidden, s.intermediate}, Fill::linear, 1, 0);
  } else {
    for (std::int64_t e = 0; e < s.experts; ++e)
      list.gated_mlp(fourfold::format("{}mlp.experts.{}.", prefix, e), s.intermediate);
  }
  if (s.shared > 0) list.gated_mlp(prefix + "mlp.shared_experts.", s.shared);
}

std::vector<PlannedTensor> plan(const ModelShape& s, const StorageScheme& scheme) {
  // transformers writes Mistral's experts stacked.
  const bool fused = s.family == &kMistral4 && !scheme.quantizes();
  TensorList list(s, 0);
  list.add("model.embed_tokens.weight", {s.vocab, s.hidden}, Fill::normal, 1, 0);
  for (std::int64_t i = 0; i < s.layers; ++i)
    add_layer(list, s, fourfold::format("model.layers.{}.", i), i < s.dense_layers, fused);
  list.norm("model.norm.weight", s.hidden);
  list.linear("lm_head", s.vocab, s.hidden, 3);
  if (!s.mtp) return list.take();
  const std::string prefix = fourfold::format("model.layers.{}.", s.layers);
  list.norm(prefix + "enorm.weight", s.hidden);
  list.norm(prefix + "hnorm.weight", s.hidden);
  list.linear(prefix + "eh_proj", s.hidden, 2 * s.hidden);
  add_layer(list, s, prefix, false, fused);
  list.norm(prefix + "shared_head.norm.weight", s.hidden);
  return list.take();
}

void write_rope(JsonWriter& json, const ModelShape& s, bool is_mistral) {
  const LatentShape& a = s.latent;
  json.key(is_mistral ? "rope_parameters" : "rope_scaling").begin_object();
  json.member("type", "yarn").member("factor", a.yarn_factor);
  json.member("original_max_position_embeddings", a.yarn_positions);
  json.member("beta_fast", a.beta_fast).member("beta_slow", 1.0);
  json.member("mscale", 1.0).member("mscale_all_dim", a.mscale_all_dim);
  if (is_mistral) json.member("rope_theta", s.theta).member("llama_4_scaling_beta", a.growth);
  json.end_object();
  if (!is_mistral) json.member("rope_theta", s.theta);
}

void write_config(JsonWriter& json, const ModelShape& s, const TokenIds& ids) {
  const bool is_mistral = s.family == &kMistral4;
  const LatentShape& a = s.latent;
  json.key("architectures").begin_array();
  json.value(is_mistral ? "Mistral4ForCausalLM" : "DeepseekV3ForCausalLM").end_array();
  json.member("model_type", s.model_type.empty() ? s.family->model_types.front() : s.model_type);
  json.member("dtype", "bfloat16");
  json.member("vocab_size", s.vocab).member("hidden_size", s.hidden);
  json.member("num_hidden_layers", s.layers).member("num_attention_heads", s.heads);
  json.member("num_key_value_heads", s.heads).member("kv_lora_rank", a.latent_dim);
  if (a.query_rank > 0)
    json.member("q_lora_rank", a.query_rank);
  else
    json.member("q_lora_rank", nullptr);
  json.member("qk_nope_head_dim", a.plain_dim).member("qk_rope_head_dim", a.turned_dim);
  json.member("v_head_dim", a.value_dim).member("attention_bias", false).member("hidden_act", "silu");
  // Not what the norms of latents have: those are 1e-6, whatever is here.
  json.member("rms_norm_eps", 1e-5).member("max_position_embeddings", s.positions);
  json.member("tie_word_embeddings", false).member("eos_token_id", ids.end_of_text);
  json.member("first_k_dense_replace", s.dense_layers);
  json.member("intermediate_size", s.dense_intermediate > 0 ? s.dense_intermediate : s.intermediate);
  json.member("n_routed_experts", s.experts).member("num_experts_per_tok", s.experts_per_token);
  json.member("moe_intermediate_size", s.intermediate).member("n_shared_experts", s.shared / s.intermediate);
  json.member("n_group", s.groups).member("topk_group", s.groups_kept).member("norm_topk_prob", true);
  json.member("routed_scaling_factor", s.routed_scale);
  if (!is_mistral) {
    json.member("scoring_func", "sigmoid").member("topk_method", "noaux_tc");
    json.member("num_nextn_predict_layers", s.mtp ? 1 : 0);
  }
  write_rope(json, s, is_mistral);
}

constexpr ModelShape kTiny[] = {
    // The heads of DeepSeek-V3, few of them.
    {.name = "tiny-deepseek",
     .what = "DeepSeek-V3, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 3,
     .full_interval = 1,
     .heads = 4,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 1e4,
     .dense_layers = 1,
     .dense_intermediate = 192,
     .groups = 4,
     .groups_kept = 2,
     .latent = {.query_rank = 96,
                .latent_dim = 512,
                .plain_dim = 128,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 40,
                .yarn_positions = 32}},
    // Queries straight from the input, and a factor on cosines and sines.
    {.name = "tiny-deepseek-odd",
     .what = "DeepSeek-V3 without a rank for queries and with odd sizes, for tests",
     .vocab = 502,
     .hidden = 192,
     .layers = 3,
     .full_interval = 1,
     .heads = 6,
     .experts = 12,
     .experts_per_token = 3,
     .intermediate = 128,
     .shared = 256,
     .positions = 4096,
     .theta = 5e4,
     .dense_layers = 1,
     .dense_intermediate = 320,
     .routed_scale = 2.827,
     .latent = {.latent_dim = 80,
                .plain_dim = 40,
                .turned_dim = 24,
                .value_dim = 32,
                .yarn_factor = 8,
                .yarn_positions = 48,
                .mscale_all_dim = 0.5}},
    // Many experts a token, of one group, and YaRN with a step in place of a ramp.
    {.name = "tiny-kimi",
     .what = "Kimi-K2, for tests",
     .model_type = "kimi_k2",
     .vocab = 502,
     .hidden = 192,
     .layers = 2,
     .full_interval = 1,
     .heads = 6,
     .experts = 24,
     .experts_per_token = 8,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 5e4,
     .mtp = false,
     .dense_layers = 1,
     .dense_intermediate = 320,
     .routed_scale = 2.827,
     .latent = {.query_rank = 96,
                .latent_dim = 512,
                .plain_dim = 128,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 32,
                .yarn_positions = 32,
                .beta_fast = 1}},
};

constexpr ModelShape kPublished[] = {
    {.name = "deepseek-v3",
     .what = "DeepSeek-V3, V3.1 and R1",
     .vocab = 129280,
     .hidden = 7168,
     .layers = 61,
     .full_interval = 1,
     .heads = 128,
     .experts = 256,
     .experts_per_token = 8,
     .intermediate = 2048,
     .shared = 2048,
     .positions = 163840,
     .theta = 1e4,
     .dense_layers = 3,
     .dense_intermediate = 18432,
     .groups = 8,
     .groups_kept = 4,
     .routed_scale = 2.5,
     .latent = {.query_rank = 1536,
                .latent_dim = 512,
                .plain_dim = 128,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 40,
                .yarn_positions = 4096}},
    {.name = "kimi-k2",
     .what = "Kimi-K2",
     .model_type = "kimi_k2",
     .vocab = 163840,
     .hidden = 7168,
     .layers = 61,
     .full_interval = 1,
     .heads = 64,
     .experts = 384,
     .experts_per_token = 8,
     .intermediate = 2048,
     .shared = 2048,
     .positions = 131072,
     .theta = 5e4,
     .mtp = false,
     .dense_layers = 1,
     .dense_intermediate = 18432,
     .routed_scale = 2.827,
     .latent = {.query_rank = 1536,
                .latent_dim = 512,
                .plain_dim = 128,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 32,
                .yarn_positions = 4096,
                .beta_fast = 1}},
};

constexpr ModelShape kTinyMistral[] = {
    {.name = "tiny-mistral",
     .what = "Mistral-Small-4, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 3,
     .full_interval = 1,
     .heads = 4,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 1e4,
     .mtp = false,
     .latent = {.query_rank = 64,
                .latent_dim = 256,
                .plain_dim = 64,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 128,
                .yarn_positions = 32,
                .growth = 0.1}},
    {.name = "tiny-mistral-odd",
     .what = "Mistral-Small-4 with odd sizes, for tests",
     .vocab = 502,
     .hidden = 192,
     .layers = 3,
     .full_interval = 1,
     .heads = 6,
     .experts = 12,
     .experts_per_token = 3,
     .intermediate = 128,
     .shared = 256,
     .positions = 4096,
     .theta = 5e4,
     .mtp = false,
     .routed_scale = 1.5,
     .latent = {.query_rank = 48,
                .latent_dim = 80,
                .plain_dim = 40,
                .turned_dim = 24,
                .value_dim = 32,
                .yarn_factor = 16,
                .yarn_positions = 24,
                .growth = 0.2}},
};

constexpr ModelShape kPublishedMistral[] = {
    {.name = "mistral-small-4",
     .what = "Mistral-Small-4-119B",
     .vocab = 131072,
     .hidden = 4096,
     .layers = 36,
     .full_interval = 1,
     .heads = 32,
     .experts = 128,
     .experts_per_token = 4,
     .intermediate = 2048,
     .shared = 2048,
     .positions = 1048576,
     .theta = 1e4,
     .mtp = false,
     .latent = {.query_rank = 1024,
                .latent_dim = 256,
                .plain_dim = 64,
                .turned_dim = 64,
                .value_dim = 128,
                .yarn_factor = 128,
                .yarn_positions = 8192,
                .growth = 0.1}},
};

}  // namespace

extern constinit const FamilyMaker kDeepseekV3Maker{plan, write_config, kTiny, kPublished};
extern constinit const FamilyMaker kMistral4Maker{plan, write_config, kTinyMistral, kPublishedMistral};

}  // namespace fourfold::checkpoint
