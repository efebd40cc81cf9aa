// Models of Qwen3.5, Qwen3-Next and Qwen3-MoE to be made: tensors and config.json.
#include "base/format.h"
#include "base/published_shapes.h"
#include "checkpoint/families/qwen/qwen.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

bool is_qwen3_moe(const ModelShape& shape) { return shape.family == &kQwen3Moe; }
bool is_nested(const ModelShape& shape) { return shape.family == &kQwen35; }

using Fill = PlannedTensor::Fill;

class Planner {
 public:
  Planner(const ModelShape& shape, bool fused)
      : s_(shape), fused_(fused), list_(shape, is_qwen3_moe(shape) ? 0 : 1) {}

  std::vector<PlannedTensor> plan() {
    const std::string prefix = is_nested(s_) ? "model.language_model." : "model.";
    list_.add(prefix + "embed_tokens.weight", {s_.vocab, s_.hidden}, Fill::normal, 1, 0);
    for (std::int64_t i = 0; i < s_.layers; ++i)
      layer(fourfold::format("{}layers.{}.", prefix, i), s_.is_full(i), fused_);
    list_.norm(prefix + "norm.weight", s_.hidden);
    list_.linear("lm_head", s_.vocab, s_.hidden, 3);
    if (s_.mtp) mtp();
    return list_.take();
  }

 private:
  void attention(const std::string& prefix) {
    const bool gate = !is_qwen3_moe(s_);
    list_.linear(prefix + "q_proj", s_.heads * s_.head_dim * (gate ? 2 : 1), s_.hidden);
    list_.linear(prefix + "k_proj", s_.kv_heads * s_.head_dim, s_.hidden);
    list_.linear(prefix + "v_proj", s_.kv_heads * s_.head_dim, s_.hidden);
    list_.linear(prefix + "o_proj", s_.hidden, s_.heads * s_.head_dim, s_.attention_gain);
    list_.norm(prefix + "q_norm.weight", s_.head_dim, s_.head_norm);
    list_.norm(prefix + "k_norm.weight", s_.head_dim, s_.head_norm);
  }
  void delta(const std::string& prefix) {
    const std::int64_t key_dim = s_.key_heads * s_.delta_dim;
    const std::int64_t value_dim = s_.value_heads * s_.delta_dim;
    if (s_.family == &kQwen3Next) {
      list_.linear(prefix + "in_proj_qkvz", 2 * key_dim + 2 * value_dim, s_.hidden);
      list_.linear(prefix + "in_proj_ba", 2 * s_.value_heads, s_.hidden);
    } else {
      list_.linear(prefix + "in_proj_qkv", 2 * key_dim + value_dim, s_.hidden);
      list_.linear(prefix + "in_proj_z", value_dim, s_.hidden);
      list_.linear(prefix + "in_proj_b", s_.value_heads, s_.hidden);
      list_.linear(prefix + "in_proj_a", s_.value_heads, s_.hidden);
    }
    list_.add(prefix + "conv1d.weight", {2 * key_dim + value_dim, 1, 4}, Fill::normal, 0.5, 0);
    // Decay factors of about 0.3 to 0.999, so that both short and long memories are exercised.
    list_.add(prefix + "A_log", {s_.value_heads}, Fill::uniform, -3, 1);
    list_.add(prefix + "dt_bias", {s_.value_heads}, Fill::normal, 1, -1);
    list_.add(prefix + "norm.weight", {s_.delta_dim}, Fill::normal, 0.2, 1);
    list_.linear(prefix + "out_proj", s_.hidden, value_dim);
  }
  void experts(const std::string& prefix, bool fused) {
    list_.linear(prefix + "gate", s_.experts, s_.hidden, 3);  // a sharp router
    if (fused) {
      list_.add(prefix + "experts.gate_up_proj", {s_.experts, 2 * s_.intermediate, s_.hidden}, Fill::linear,
                1, 0);
      list_.add(prefix + "experts.down_proj", {s_.experts, s_.hidden, s_.intermediate}, Fill::linear, 1, 0);
    } else {
      for (std::int64_t e = 0; e < s_.experts; ++e)
        list_.gated_mlp(fourfold::format("{}experts.{}.", prefix, e), s_.intermediate);
    }
    if (s_.shared == 0) return;
    list_.gated_mlp(prefix + "shared_expert.", s_.shared);
    list_.linear(prefix + "shared_expert_gate", 1, s_.hidden);
  }
  void layer(const std::string& prefix, bool full, bool fused) {
    list_.norm(prefix + "input_layernorm.weight", s_.hidden);
    if (full)
      attention(prefix + "self_attn.");
    else
      delta(prefix + "linear_attn.");
    list_.norm(prefix + "post_attention_layernorm.weight", s_.hidden);
    if (s_.experts > 0)
      experts(prefix + "mlp.", fused);
    else
      list_.gated_mlp(prefix + "mlp.", s_.intermediate);
  }
  void mtp() {
    list_.linear("mtp.fc", s_.hidden, 2 * s_.hidden);
    list_.norm("mtp.pre_fc_norm_embedding.weight", s_.hidden);
    list_.norm("mtp.pre_fc_norm_hidden.weight", s_.hidden);
    layer("mtp.layers.0.", true, false);
    list_.norm("mtp.norm.weight", s_.hidden);
  }

  const ModelShape& s_;
  bool fused_;
  TensorList list_;
};

struct Architecture {
  std::string_view outer_type;  // model_type of the wrapper, or the only one
  std::string_view inner_type;
  std::string_view class_name;
};

Architecture architecture_of(const ModelShape& shape) {
  if (shape.family == &kQwen3Next) return {"qwen3_next", "qwen3_next", "Qwen3NextForCausalLM"};
  if (is_qwen3_moe(shape)) return {"qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM"};
  if (shape.experts == 0) return {"qwen3_5", "qwen3_5_text", "Qwen3_5ForConditionalGeneration"};
  return {"qwen3_5_moe", "qwen3_5_moe_text", "Qwen3_5MoeForConditionalGeneration"};
}

void write_rope(JsonWriter& json, const ModelShape& shape) {
  if (!is_nested(shape)) {
    json.member("rope_theta", shape.theta).member("rope_scaling", nullptr);
    if (shape.family == &kQwen3Next) json.member("partial_rotary_factor", 0.25);
    return;
  }
  const std::int64_t pairs = shape.head_dim / 4 / 2;
  const std::int64_t first = (pairs + 2) / 3;
  const std::int64_t second = (pairs - first + 1) / 2;
  json.key("rope_parameters").begin_object().member("rope_type", "default").member("rope_theta", shape.theta);
  json.member("partial_rotary_factor", 0.25).member("mrope_interleaved", true).key("mrope_section");
  json.begin_array().value(first).value(second).value(pairs - first - second).end_array().end_object();
}

void write_delta_sizes(JsonWriter& json, const ModelShape& shape) {
  if (shape.full_interval == 1) return;
  json.member("full_attention_interval", shape.full_interval).key("layer_types").begin_array();
  for (std::int64_t i = 0; i < shape.layers; ++i)
    json.value(shape.is_full(i) ? "full_attention" : "linear_attention");
  json.end_array();
  json.member("linear_conv_kernel_dim", 4).member("linear_key_head_dim", shape.delta_dim);
  json.member("linear_value_head_dim", shape.delta_dim).member("linear_num_key_heads", shape.key_heads);
  json.member("linear_num_value_heads", shape.value_heads);
}

void write_mlp_sizes(JsonWriter& json, const ModelShape& shape) {
  if (shape.experts == 0) {
    json.member("intermediate_size", shape.intermediate);
    return;
  }
  json.member("num_experts", shape.experts).member("num_experts_per_tok", shape.experts_per_token);
  json.member("moe_intermediate_size", shape.intermediate).member("norm_topk_prob", true);
  json.member("decoder_sparse_step", 1).key("mlp_only_layers").begin_array().end_array();
  // No layer is dense; libraries that read the config want a number all the same.
  json.member("intermediate_size", 4 * shape.intermediate);
  if (shape.shared > 0) json.member("shared_expert_intermediate_size", shape.shared);
}

void write_text_config(JsonWriter& json, const ModelShape& shape, const TokenIds& ids) {
  json.member("model_type", architecture_of(shape).inner_type).member("dtype", "bfloat16");
  json.member("vocab_size", shape.vocab).member("hidden_size", shape.hidden);
  json.member("num_hidden_layers", shape.layers).member("num_attention_heads", shape.heads);
  json.member("num_key_value_heads", shape.kv_heads).member("head_dim", shape.head_dim);
  json.member("hidden_act", "silu").member("rms_norm_eps", 1e-6).member("attention_bias", false);
  json.member("max_position_embeddings", shape.positions).member("tie_word_embeddings", false);
  json.member("eos_token_id", ids.end_of_text);
  if (!is_qwen3_moe(shape)) json.member("attn_output_gate", true);
  write_delta_sizes(json, shape);
  write_mlp_sizes(json, shape);
  write_rope(json, shape);
  if (shape.mtp) json.member("mtp_num_hidden_layers", 1);
}

void write_config(JsonWriter& json, const ModelShape& shape, const TokenIds& ids) {
  const Architecture architecture = architecture_of(shape);
  json.key("architectures").begin_array().value(architecture.class_name).end_array();
  if (!is_nested(shape)) return write_text_config(json, shape, ids);
  json.member("model_type", architecture.outer_type).member("tie_word_embeddings", false);
  json.key("text_config").begin_object();
  write_text_config(json, shape, ids);
  json.end_object();
}

std::vector<PlannedTensor> plan(const ModelShape& shape, const StorageScheme& scheme) {
  return Planner(shape, shape.family == &kQwen35 && !scheme.quantizes()).plan();
}

constexpr ModelShape kTiny35[] = {
    {.name = "tiny",
     .what = "Qwen3.5 MoE, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 4,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .key_heads = 2,
     .value_heads = 4,
     .delta_dim = 32,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 1e7},
    {.name = "tiny-dense",
     .what = "Qwen3.5 dense, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 4,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .key_heads = 2,
     .value_heads = 4,
     .delta_dim = 32,
     .intermediate = 256,
     .positions = 4096,
     .theta = 1e7},
    // Two layers, so that thousands of tokens take a simulator seconds, and scores of deviation 5, so that a
    // row attends to a few positions anywhere in its past instead of to the mean of them all.
    {.name = "tiny-long",
     .what = "Qwen3.5 dense with peaked attention, for tests of long prompts",
     .vocab = 320,
     .hidden = 128,
     .layers = 2,
     .full_interval = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .key_heads = 2,
     .value_heads = 4,
     .delta_dim = 32,
     .intermediate = 64,
     .positions = 4096,
     .theta = 1e7,
     .mtp = false,
     .head_norm = 2.25,
     .attention_gain = 4},
    {.name = "small",
     .what = "Qwen3.5 MoE with the heads of the published sizes",
     .vocab = 4096,
     .hidden = 512,
     .layers = 8,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 256,
     .key_heads = 2,
     .value_heads = 8,
     .delta_dim = 128,
     .experts = 16,
     .experts_per_token = 4,
     .intermediate = 128,
     .shared = 128,
     .positions = 32768,
     .theta = 1e7},
};

constexpr ModelShape kPublished35[] = {
    {.name = kQwen35b.name,
     .what = "Qwen3.5-35B-A3B",
     .vocab = 248320,
     .hidden = kQwen35b.hidden,
     .layers = 40,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .key_heads = 16,
     .value_heads = 32,
     .delta_dim = 128,
     .experts = kQwen35b.experts,
     .experts_per_token = kQwen35b.top_k,
     .intermediate = kQwen35b.intermediate,
     .shared = 512,
     .positions = 262144,
     .theta = 1e7},
    {.name = kQwen122b.name,
     .what = "Qwen3.5-122B-A10B",
     .vocab = 248320,
     .hidden = kQwen122b.hidden,
     .layers = 48,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 256,
     .key_heads = 16,
     .value_heads = 64,
     .delta_dim = 128,
     .experts = kQwen122b.experts,
     .experts_per_token = kQwen122b.top_k,
     .intermediate = kQwen122b.intermediate,
     .shared = 1024,
     .positions = 262144,
     .theta = 1e7},
    {.name = kQwen397b.name,
     .what = "Qwen3.5-397B-A17B",
     .vocab = 248320,
     .hidden = kQwen397b.hidden,
     .layers = 60,
     .heads = 32,
     .kv_heads = 2,
     .head_dim = 256,
     .key_heads = 16,
     .value_heads = 64,
     .delta_dim = 128,
     .experts = kQwen397b.experts,
     .experts_per_token = kQwen397b.top_k,
     .intermediate = kQwen397b.intermediate,
     .shared = 1024,
     .positions = 262144,
     .theta = 1e7},
};

constexpr ModelShape kTinyNext[] = {
    {.name = "tiny-next",
     .what = "Qwen3-Next, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 4,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .key_heads = 2,
     .value_heads = 4,
     .delta_dim = 32,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .shared = 64,
     .positions = 4096,
     .theta = 1e7},
};

constexpr ModelShape kPublishedNext[] = {
    {.name = "next-80b",
     .what = "Qwen3-Next-80B-A3B",
     .vocab = 151936,
     .hidden = 2048,
     .layers = 48,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .key_heads = 16,
     .value_heads = 32,
     .delta_dim = 128,
     .experts = 512,
     .experts_per_token = 10,
     .intermediate = 512,
     .shared = 512,
     .positions = 262144,
     .theta = 1e7},
};

constexpr ModelShape kTinyQwen3Moe[] = {
    {.name = "tiny-qwen3-moe",
     .what = "Qwen3-MoE, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 3,
     .full_interval = 1,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .positions = 4096,
     .theta = 1e6,
     .mtp = false},
};

constexpr ModelShape kPublishedQwen3Moe[] = {
    {.name = "qwen3-30b",
     .what = "Qwen3-30B-A3B",
     .vocab = 151936,
     .hidden = 2048,
     .layers = 48,
     .full_interval = 1,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .experts = 128,
     .experts_per_token = 8,
     .intermediate = 768,
     .positions = 40960,
     .theta = 1e6,
     .mtp = false},
};

}  // namespace

constinit const FamilyMaker kQwen35Maker{plan, write_config, kTiny35, kPublished35};
constinit const FamilyMaker kQwen3NextMaker{plan, write_config, kTinyNext, kPublishedNext};
constinit const FamilyMaker kQwen3MoeMaker{plan, write_config, kTinyQwen3Moe, kPublishedQwen3Moe};

}  // namespace fourfold::checkpoint
