#include "checkpoint/write/model_shape.h"

#include "base/error.h"
#include "base/published_shapes.h"

namespace fourfold::checkpoint {
namespace {

// Published sizes are those of the releases' config files.
constexpr ModelShape kShapes[] = {
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
    {.name = "tiny-next",
     .what = "Qwen3-Next, for tests",
     .family = Family::qwen3_next,
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
    {.name = "tiny-qwen3-moe",
     .what = "Qwen3-MoE, for tests",
     .family = Family::qwen3_moe,
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
    {.name = "next-80b",
     .what = "Qwen3-Next-80B-A3B",
     .family = Family::qwen3_next,
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
    {.name = "qwen3-30b",
     .what = "Qwen3-30B-A3B",
     .family = Family::qwen3_moe,
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

using Fill = PlannedTensor::Fill;

class Planner {
 public:
  Planner(const ModelShape& shape, bool fused) : s_(shape), fused_(fused) {}

  std::vector<PlannedTensor> plan() {
    const std::string prefix = s_.is_nested() ? "model.language_model." : "model.";
    add(prefix + "embed_tokens.weight", {s_.vocab, s_.hidden}, Fill::normal, 1, 0);
    for (std::int64_t i = 0; i < s_.layers; ++i)
      layer(fourfold::format("{}layers.{}.", prefix, i), s_.is_full(i), fused_);
    norm(prefix + "norm.weight", s_.hidden);
    linear("lm_head", s_.vocab, s_.hidden, 3);
    if (s_.mtp) mtp();
    return std::move(tensors_);
  }

 private:
  void add(std::string name, Shape shape, Fill fill, double a, double b) {
    tensors_.push_back({std::move(name), shape, fill, a, b});
  }
  void linear(const std::string& module, std::int64_t rows, std::int64_t columns, double gain = 1) {
    add(module + ".weight", {rows, columns}, Fill::linear, gain, 0);
  }
  // Stored as w, used as 1 + w; Qwen3-MoE uses w itself.
  void norm(const std::string& name, std::int64_t size, double mean = 1) {
    add(name, {size}, Fill::normal, 0.2, s_.family == Family::qwen3_moe ? mean : mean - 1);
  }
  void attention(const std::string& prefix) {
    const bool gate = s_.family != Family::qwen3_moe;
    linear(prefix + "q_proj", s_.heads * s_.head_dim * (gate ? 2 : 1), s_.hidden);
    linear(prefix + "k_proj", s_.kv_heads * s_.head_dim, s_.hidden);
    linear(prefix + "v_proj", s_.kv_heads * s_.head_dim, s_.hidden);
    linear(prefix + "o_proj", s_.hidden, s_.heads * s_.head_dim, s_.attention_gain);
    norm(prefix + "q_norm.weight", s_.head_dim, s_.head_norm);
    norm(prefix + "k_norm.weight", s_.head_dim, s_.head_norm);
  }
  void delta(const std::string& prefix) {
    const std::int64_t key_dim = s_.key_heads * s_.delta_dim;
    const std::int64_t value_dim = s_.value_heads * s_.delta_dim;
    if (s_.family == Family::qwen3_next) {
      linear(prefix + "in_proj_qkvz", 2 * key_dim + 2 * value_dim, s_.hidden);
      linear(prefix + "in_proj_ba", 2 * s_.value_heads, s_.hidden);
    } else {
      linear(prefix + "in_proj_qkv", 2 * key_dim + value_dim, s_.hidden);
      linear(prefix + "in_proj_z", value_dim, s_.hidden);
      linear(prefix + "in_proj_b", s_.value_heads, s_.hidden);
      linear(prefix + "in_proj_a", s_.value_heads, s_.hidden);
    }
    add(prefix + "conv1d.weight", {2 * key_dim + value_dim, 1, 4}, Fill::normal, 0.5, 0);
    // Decay factors of about 0.3 to 0.999, so that both short and long memories are exercised.
    add(prefix + "A_log", {s_.value_heads}, Fill::uniform, -3, 1);
    add(prefix + "dt_bias", {s_.value_heads}, Fill::normal, 1, -1);
    add(prefix + "norm.weight", {s_.delta_dim}, Fill::normal, 0.2, 1);
    linear(prefix + "out_proj", s_.hidden, value_dim);
  }
  void gated_mlp(const std::string& prefix, std::int64_t intermediate) {
    linear(prefix + "gate_proj", intermediate, s_.hidden);
    linear(prefix + "up_proj", intermediate, s_.hidden);
    linear(prefix + "down_proj", s_.hidden, intermediate);
  }
  void experts(const std::string& prefix, bool fused) {
    linear(prefix + "gate", s_.experts, s_.hidden, 3);  // a sharp router
    if (fused) {
      add(prefix + "experts.gate_up_proj", {s_.experts, 2 * s_.intermediate, s_.hidden}, Fill::linear, 1, 0);
      add(prefix + "experts.down_proj", {s_.experts, s_.hidden, s_.intermediate}, Fill::linear, 1, 0);
    } else {
      for (std::int64_t e = 0; e < s_.experts; ++e)
        gated_mlp(fourfold::format("{}experts.{}.", prefix, e), s_.intermediate);
    }
    if (s_.shared == 0) return;
    gated_mlp(prefix + "shared_expert.", s_.shared);
    linear(prefix + "shared_expert_gate", 1, s_.hidden);
  }
  void layer(const std::string& prefix, bool full, bool fused) {
    norm(prefix + "input_layernorm.weight", s_.hidden);
    if (full)
      attention(prefix + "self_attn.");
    else
      delta(prefix + "linear_attn.");
    norm(prefix + "post_attention_layernorm.weight", s_.hidden);
    if (s_.experts > 0)
      experts(prefix + "mlp.", fused);
    else
      gated_mlp(prefix + "mlp.", s_.intermediate);
  }
  void mtp() {
    linear("mtp.fc", s_.hidden, 2 * s_.hidden);
    norm("mtp.pre_fc_norm_embedding.weight", s_.hidden);
    norm("mtp.pre_fc_norm_hidden.weight", s_.hidden);
    layer("mtp.layers.0.", true, false);
    norm("mtp.norm.weight", s_.hidden);
  }

  const ModelShape& s_;
  bool fused_;
  std::vector<PlannedTensor> tensors_;
};

struct Architecture {
  std::string_view outer_type;  // model_type of the wrapper, or the only one
  std::string_view inner_type;
  std::string_view class_name;
};

Architecture architecture_of(const ModelShape& shape) {
  if (shape.family == Family::qwen3_next) return {"qwen3_next", "qwen3_next", "Qwen3NextForCausalLM"};
  if (shape.family == Family::qwen3_moe) return {"qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM"};
  if (shape.experts == 0) return {"qwen3_5", "qwen3_5_text", "Qwen3_5ForConditionalGeneration"};
  return {"qwen3_5_moe", "qwen3_5_moe_text", "Qwen3_5MoeForConditionalGeneration"};
}

void write_rope(JsonWriter& json, const ModelShape& shape) {
  if (!shape.is_nested()) {
    json.member("rope_theta", shape.theta).member("rope_scaling", nullptr);
    if (shape.family == Family::qwen3_next) json.member("partial_rotary_factor", 0.25);
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
  if (shape.family != Family::qwen3_moe) json.member("attn_output_gate", true);
  write_delta_sizes(json, shape);
  write_mlp_sizes(json, shape);
  write_rope(json, shape);
  if (shape.mtp) json.member("mtp_num_hidden_layers", 1);
}

}  // namespace

std::span<const ModelShape> known_shapes() { return kShapes; }

const ModelShape& find_shape(std::string_view name) {
  std::string names;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names += (names.empty() ? "" : ", ") + std::string(shape.name);
  }
  fail_with_hint(Code::invalid_request, "known shapes: " + names, "unknown shape '{}'", name);
}

std::vector<PlannedTensor> plan_tensors(const ModelShape& shape, bool fused_experts) {
  return Planner(shape, fused_experts).plan();
}

std::string config_text(const ModelShape& shape, const TokenIds& ids, const StorageScheme& scheme,
                        const std::vector<StoredModule>& modules) {
  const Architecture architecture = architecture_of(shape);
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().key("architectures").begin_array().value(architecture.class_name).end_array();
  if (shape.is_nested()) {
    json.member("model_type", architecture.outer_type).member("tie_word_embeddings", false);
    json.key("text_config").begin_object();
    write_text_config(json, shape, ids);
    json.end_object();
  } else {
    write_text_config(json, shape, ids);
  }
  if (scheme.quantizes()) {
    json.key("quantization_config");
    describe_quantization(json, scheme, modules);
  }
  return json.end_object().finish() + "\n";
}

}  // namespace fourfold::checkpoint
