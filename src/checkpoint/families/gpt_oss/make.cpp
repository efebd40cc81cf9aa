// Models of gpt-oss to be made: tensors and config.json.
#include "base/format.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

using Fill = PlannedTensor::Fill;

// Gates and ups so large that some are clamped, and down so small that experts add as much as other
// families'.
constexpr double kGateGain = 3, kDownGain = 0.15;

void add_attention(TensorList& list, const ModelShape& s, const std::string& prefix) {
  list.attention(prefix);
  list.bias(prefix + "o_proj.bias", s.hidden);
  // Large enough to take a good share of a window's softmax.
  list.add(prefix + "sinks", {s.heads}, Fill::normal, 1, 2);
}

// As releases have them: MXFP4 as [experts, out, in], 16 bits as [experts, in, out]. Tools that quantise
// otherwise write one expert after another.
void add_experts(TensorList& list, const ModelShape& s, const StorageScheme& scheme,
                 const std::string& prefix) {
  const bool is_mxfp4 = scheme.routed == StoredAs::mxfp4;
  const auto stacked = [&](const char* name, std::int64_t out, std::int64_t in, double gain) {
    list.add(prefix + name, is_mxfp4 ? Shape{s.experts, out, in} : Shape{s.experts, in, out}, Fill::linear,
             gain, 0);
    list.add(prefix + name + "_bias", {s.experts, out}, Fill::normal, 0.5, 0);
  };
  if (is_mxfp4 || !scheme.quantizes()) {
    stacked("gate_up_proj", 2 * s.intermediate, s.hidden, kGateGain);
    stacked("down_proj", s.hidden, s.intermediate, kDownGain);
    return;
  }
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const std::string expert = fourfold::format("{}{}.", prefix, e);
    list.linear(expert + "gate_proj", s.intermediate, s.hidden, kGateGain);
    list.linear(expert + "up_proj", s.intermediate, s.hidden, kGateGain);
    list.linear(expert + "down_proj", s.hidden, s.intermediate, kDownGain);
    list.bias(expert + "gate_proj.bias", s.intermediate);
    list.bias(expert + "up_proj.bias", s.intermediate);
    list.bias(expert + "down_proj.bias", s.hidden);
  }
}

std::vector<PlannedTensor> plan(const ModelShape& s, const StorageScheme& scheme) {
  TensorList list(s, 0);
  list.add("model.embed_tokens.weight", {s.vocab, s.hidden}, Fill::normal, 1, 0);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string prefix = fourfold::format("model.layers.{}.", i);
    list.norm(prefix + "input_layernorm.weight", s.hidden);
    add_attention(list, s, prefix + "self_attn.");
    list.norm(prefix + "post_attention_layernorm.weight", s.hidden);
    list.linear(prefix + "mlp.router", s.experts, s.hidden, 3);  // a sharp router
    list.bias(prefix + "mlp.router.bias", s.experts);
    add_experts(list, s, scheme, prefix + "mlp.experts.");
  }
  list.norm("model.norm.weight", s.hidden);
  list.linear("lm_head", s.vocab, s.hidden, 3);
  return list.take();
}

void write_config(JsonWriter& json, const ModelShape& s, const TokenIds& ids) {
  json.key("architectures").begin_array().value("GptOssForCausalLM").end_array();
  json.member("model_type", "gpt_oss").member("dtype", "bfloat16");
  json.member("vocab_size", s.vocab).member("hidden_size", s.hidden);
  json.member("num_hidden_layers", s.layers).member("num_attention_heads", s.heads);
  json.member("num_key_value_heads", s.kv_heads).member("head_dim", s.head_dim);
  json.member("hidden_act", "silu").member("rms_norm_eps", 1e-5).member("attention_bias", true);
  json.member("max_position_embeddings", s.positions).member("tie_word_embeddings", false);
  json.member("eos_token_id", ids.end_of_text).member("num_local_experts", s.experts);
  json.member("num_experts_per_tok", s.experts_per_token).member("intermediate_size", s.intermediate);
  json.member("swiglu_limit", 7.0).member("sliding_window", s.window);
  json.key("layer_types").begin_array();
  for (std::int64_t i = 0; i < s.layers; ++i) json.value(i % 2 == 0 ? "sliding_attention" : "full_attention");
  json.end_array();
  json.member("rope_theta", s.theta).key("rope_scaling").begin_object();
  json.member("rope_type", "yarn").member("factor", 32.0).member("beta_fast", 32.0).member("beta_slow", 1.0);
  json.member("original_max_position_embeddings", s.positions / 32).member("truncate", false).end_object();
}

constexpr ModelShape kTiny[] = {
    // The window is shorter than the prompts of tests.
    {.name = "tiny-gpt-oss",
     .what = "gpt-oss, for tests",
     .vocab = 640,
     .hidden = 128,
     .layers = 4,
     .full_interval = 1,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 8,
     .experts_per_token = 2,
     .intermediate = 64,
     .positions = 4096,
     .theta = 150000,
     .mtp = false,
     .attention_bias = true,
     .window = 16},
    // Three records of 64 columns, as the releases have 45: of two ranks one has more.
    {.name = "tiny-gpt-oss-odd",
     .what = "gpt-oss with odd sizes, for tests",
     .vocab = 502,
     .hidden = 192,
     .layers = 3,
     .full_interval = 1,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 64,
     .experts = 10,
     .experts_per_token = 3,
     .intermediate = 192,
     .positions = 4096,
     .theta = 150000,
     .mtp = false,
     .attention_bias = true,
     .window = 37},
};

constexpr ModelShape kPublished[] = {
    {.name = "gpt-oss-20b",
     .what = "gpt-oss-20b",
     .vocab = 201088,
     .hidden = 2880,
     .layers = 24,
     .full_interval = 1,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .experts = 32,
     .experts_per_token = 4,
     .intermediate = 2880,
     .positions = 131072,
     .theta = 150000,
     .mtp = false,
     .attention_bias = true,
     .window = 128},
    {.name = "gpt-oss-120b",
     .what = "gpt-oss-120b",
     .vocab = 201088,
     .hidden = 2880,
     .layers = 36,
     .full_interval = 1,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .experts = 128,
     .experts_per_token = 4,
     .intermediate = 2880,
     .positions = 131072,
     .theta = 150000,
     .mtp = false,
     .attention_bias = true,
     .window = 128},
};

}  // namespace

extern constinit const FamilyMaker kGptOssMaker{
    .plan = plan, .write_config = write_config, .tiny = kTiny, .published = kPublished, .mxfp4_blocks = true};

}  // namespace fourfold::checkpoint
