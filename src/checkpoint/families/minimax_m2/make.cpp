// Models of MiniMax-M2 to be made: tensors and config.json.
#include "base/format.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

using Fill = PlannedTensor::Fill;

void add_layer(TensorList& list, const ModelShape& s, const std::string& prefix) {
  const std::int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  list.norm(prefix + "input_layernorm.weight", s.hidden);
  list.attention(prefix + "self_attn.");
  list.norm(prefix + "self_attn.q_norm.weight", width);
  list.norm(prefix + "self_attn.k_norm.weight", kv_width);
  list.norm(prefix + "post_attention_layernorm.weight", s.hidden);
  const std::string block = prefix + "block_sparse_moe.";
  list.linear(block + "gate", s.experts, s.hidden, 3);  // a sharp router
  // Large enough to change who is chosen: scores are between 0 and 1.
  list.add(block + "e_score_correction_bias", {s.experts}, Fill::normal, 0.3, 0);
  for (std::int64_t e = 0; e < s.experts; ++e)
    list.gated_mlp(fourfold::format("{}experts.{}.", block, e), s.intermediate,
                   {.gate = "w1", .up = "w3", .down = "w2"});
}

std::vector<PlannedTensor> plan(const ModelShape& s, const StorageScheme&) {
  TensorList list(s, 0);
  list.add("model.embed_tokens.weight", {s.vocab, s.hidden}, Fill::normal, 1, 0);
  for (std::int64_t i = 0; i < s.layers; ++i) add_layer(list, s, fourfold::format("model.layers.{}.", i));
  list.norm("model.norm.weight", s.hidden);
  list.linear("lm_head", s.vocab, s.hidden, 3);
  return list.take();
}

void write_config(JsonWriter& json, const ModelShape& s, const TokenIds& ids) {
  json.key("architectures").begin_array().value("MiniMaxM2ForCausalLM").end_array();
  json.member("model_type", "minimax_m2").member("dtype", "bfloat16");
  json.member("vocab_size", s.vocab).member("hidden_size", s.hidden);
  json.member("num_hidden_layers", s.layers).member("num_attention_heads", s.heads);
  json.member("num_key_value_heads", s.kv_heads).member("head_dim", s.head_dim);
  json.member("hidden_act", "silu").member("rms_norm_eps", 1e-6);
  json.member("use_qk_norm", true).member("qk_norm_type", "per_layer");
  json.member("max_position_embeddings", s.positions).member("tie_word_embeddings", false);
  json.member("eos_token_id", ids.end_of_text).member("num_local_experts", s.experts);
  json.member("num_experts_per_tok", s.experts_per_token).member("intermediate_size", s.intermediate);
  json.member("shared_intermediate_size", 0).member("scoring_func", "sigmoid");
  json.member("use_routing_bias", true).member("rope_theta", s.theta).member("rotary_dim", s.head_dim / 2);
}

constexpr ModelShape kTiny[] = {
    {.name = "tiny-minimax",
     .what = "MiniMax-M2, for tests",
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
     .positions = 4096,
     .theta = 5e6,
     .mtp = false},
    {.name = "tiny-minimax-odd",
     .what = "MiniMax-M2 with odd sizes, for tests",
     .vocab = 502,
     .hidden = 192,
     .layers = 3,
     .full_interval = 1,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 10,
     .experts_per_token = 3,
     .intermediate = 128,
     .positions = 4096,
     .theta = 5e6,
     .mtp = false},
};

constexpr ModelShape kPublished[] = {
    {.name = "minimax-m2",
     .what = "MiniMax-M2",
     .vocab = 200064,
     .hidden = 3072,
     .layers = 62,
     .full_interval = 1,
     .heads = 48,
     .kv_heads = 8,
     .head_dim = 128,
     .experts = 256,
     .experts_per_token = 8,
     .intermediate = 1536,
     .positions = 196608,
     .theta = 5e6,
     .mtp = false},
};

}  // namespace

extern constinit const FamilyMaker kMiniMaxM2Maker{plan, write_config, kTiny, kPublished};

}  // namespace fourfold::checkpoint
