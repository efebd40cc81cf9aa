// config.json -> ModelConfig for Qwen3.5 (nested or flat, with experts or dense), Qwen3-Next and Qwen3-MoE.
#include "checkpoint/hf_config.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "checkpoint/field_reader.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

namespace bj = boost::json;

// Mixed-precision configs list every module: 397B has some 40,000 bytes, per-expert lists would have
// millions.
constexpr json::Limits kConfigLimits{.text_bytes_max = std::size_t{64} << 20, .depth_max = 32};

// Limits far beyond every known model and far below what would overflow a product of three of them.
constexpr IntRange kWidth{1, 1 << 20};
constexpr IntRange kHeads{1, 4096};
constexpr IntRange kHeadDim{1, 4096};
constexpr IntRange kLayers{1, 4096};
constexpr IntRange kExperts{1, 65536};
constexpr IntRange kVocabulary{1, 1 << 26};
constexpr IntRange kPositions{1, std::int64_t{1} << 31};
constexpr IntRange kTokenId{0, 1 << 26};

struct Kind {
  Family family;
  bool experts;
};

Kind kind_of(std::string_view model_type, std::string_view what) {
  if (model_type == "qwen3_5_moe" || model_type == "qwen3_5_moe_text") return {Family::qwen35, true};
  if (model_type == "qwen3_5" || model_type == "qwen3_5_text") return {Family::qwen35, false};
  if (model_type == "qwen3_next") return {Family::qwen3_next, true};
  if (model_type == "qwen3_moe") return {Family::qwen3_moe, true};
  fail_with_hint(Code::unsupported_model,
                 "supported model types: qwen3_5_moe, qwen3_5 (and their _text forms), qwen3_next, qwen3_moe",
                 "{}: model_type is \"{}\"", what, model_type.substr(0, 80));
}

// Fields that change nothing this program computes.
void ignore_without_effect(FieldReader& fields) {
  fields.ignore({"_name_or_path",
                 "architectures",
                 "attention_dropout",
                 "attn_implementation",
                 "auto_map",
                 "chunk_size_feed_forward",
                 "dtype",
                 "id2label",
                 "image_token_id",
                 "initializer_range",
                 "is_encoder_decoder",
                 "label2id",
                 "language_model_only",
                 "mamba_ssm_dtype",
                 "max_window_layers",
                 "output_attentions",
                 "output_hidden_states",
                 "output_router_logits",
                 "pad_token_id",
                 "quantization_config",
                 "return_dict",
                 "router_aux_loss_coef",
                 "router_jitter_noise",
                 "sliding_window",
                 "torch_dtype",
                 "transformers_version",
                 "use_cache",
                 "video_token_id",
                 "vision_config",
                 "vision_end_token_id",
                 "vision_start_token_id",
                 "full_attention_interval",
                 "intermediate_size",
                 "layer_types",
                 "mtp_use_dedicated_embeddings"});
}

void read_attention(FieldReader& fields, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  attention.head_count = fields.required_int("num_attention_heads", kHeads);
  attention.kv_head_count = fields.required_int("num_key_value_heads", kHeads);
  attention.head_dim = fields.required_int("head_dim", kHeadDim);
  attention.output_gate =
      fields.optional_bool("attn_output_gate").value_or(config.family != Family::qwen3_moe);
  if (attention.head_count % attention.kv_head_count != 0)
    fields.problem("contradictory", "num_attention_heads",
                   fourfold::format("= {} is no multiple of num_key_value_heads = {}", attention.head_count,
                                    attention.kv_head_count));
}

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
  if (config.family != Family::qwen3_moe)
    moe.shared_intermediate_size = fields.required_int("shared_expert_intermediate_size", {0, kWidth.most});
  // Qwen3-MoE reads an absent norm_topk_prob as false, the others never look and always renormalise.
  moe.normalize_weights = fields.optional_bool("norm_topk_prob").value_or(config.family != Family::qwen3_moe);
  if (moe.experts_per_token > moe.expert_count)
    fields.problem(
        "contradictory", "num_experts_per_tok",
        fourfold::format("= {} exceeds num_experts = {}", moe.experts_per_token, moe.expert_count));
  config.moe = moe;
}

// The list when there is one; otherwise every full_attention_interval-th layer is full attention, the rest
// linear.
std::vector<MixerKind> read_mixers(FieldReader& fields, Family family, std::int64_t layer_count) {
  const auto linear_unless = [&](std::int64_t interval) {
    std::vector<MixerKind> mixers;
    for (std::int64_t i = 0; i < layer_count; ++i)
      mixers.push_back((i + 1) % interval == 0 ? MixerKind::full_attention : MixerKind::linear_attention);
    return mixers;
  };
  if (!fields.has("layer_types"))
    return linear_unless(
        family == Family::qwen3_moe ? 1 : fields.required_int("full_attention_interval", kLayers));
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

void read_layers(FieldReader& fields, Kind kind, ModelConfig& config) {
  const std::int64_t layer_count = fields.required_int("num_hidden_layers", kLayers);
  const std::vector<MixerKind> mixers = read_mixers(fields, kind.family, layer_count);
  const auto dense_layers = fields.optional_ints("mlp_only_layers", {0, kLayers.most});
  const std::int64_t sparse_step = fields.optional_int("decoder_sparse_step", kLayers).value_or(1);
  bool any_dense = false;
  bool any_experts = false;
  bool any_linear = false;
  for (std::int64_t i = 0; i < layer_count; ++i) {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    const bool experts = kind.experts && !listed && (i + 1) % sparse_step == 0;
    const MixerKind mixer = mixers[static_cast<std::size_t>(i)];
    config.layers.push_back({mixer, experts ? MlpKind::experts : MlpKind::dense});
    (experts ? any_experts : any_dense) = true;
    any_linear = any_linear || mixer == MixerKind::linear_attention;
  }
  if (any_dense) config.dense_intermediate_size = fields.required_int("intermediate_size", kWidth);
  if (any_experts) read_moe(fields, config);
  if (any_linear) read_delta(fields, config);
}

std::optional<YarnConfig> read_yarn(FieldReader& rope, std::string_view type) {
  if (type == "default" || type == "mrope") return std::nullopt;
  if (type != "yarn") rope.unsupported("rope_type", type, "default, mrope, yarn");
  YarnConfig yarn;
  yarn.factor = rope.required_real("factor", {0, 1e6});
  yarn.original_positions = rope.required_int("original_max_position_embeddings", kPositions);
  yarn.beta_fast = rope.optional_real("beta_fast", {0, 1e6}).value_or(yarn.beta_fast);
  yarn.beta_slow = rope.optional_real("beta_slow", {0, 1e6}).value_or(yarn.beta_slow);
  yarn.attention_factor = rope.optional_real("attention_factor", {0, 1e6});
  return yarn;
}

// rope_parameters holds everything in new files; old ones have rope_theta and rope_scaling beside the other
// fields. A value in the object wins.
void read_rope(FieldReader& fields, ModelConfig& config, std::string_view what, ProblemList& problems) {
  RopeConfig& rope = config.rope;
  const bj::object none;
  const char* name = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  fields.ignore({"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"});
  const bj::object* object = fields.optional_object(name);
  FieldReader inner(object == nullptr ? none : *object, what, std::string(name) + ".", problems);
  FieldReader& theta_place = inner.has("rope_theta") ? inner : fields;
  rope.theta = theta_place.required_real("rope_theta", {0, 1e12});
  FieldReader& factor_place = inner.has("partial_rotary_factor") ? inner : fields;
  const double factor = factor_place.optional_real("partial_rotary_factor", {0, 1})
                            .value_or(config.family == Family::qwen3_moe ? 1.0 : 0.25);
  const char* type_name = inner.has("rope_type") ? "rope_type" : "type";
  inner.ignore({"rope_type", "type"});
  rope.yarn = read_yarn(inner, inner.optional_text(type_name).value_or("default"));
  rope.mrope_sections = inner.optional_ints("mrope_section", {0, kHeadDim.most});
  rope.mrope_interleaved = inner.optional_bool("mrope_interleaved").value_or(false);
  // An unknown field here would change the rotation, and the answer with it.
  for (const std::string& unknown : inner.unread()) fields.problem("unknown", unknown, "");

  const double dims = static_cast<double>(config.attention.head_dim) * factor;
  rope.rotary_dims = static_cast<std::int64_t>(dims);
  if (static_cast<double>(rope.rotary_dims) != dims || rope.rotary_dims % 2 != 0 || rope.rotary_dims == 0)
    fields.problem("contradictory", "head_dim",
                   fourfold::format("= {} times partial_rotary_factor = {} is no even number",
                                    config.attention.head_dim, factor));
  const auto sections =
      std::accumulate(rope.mrope_sections.begin(), rope.mrope_sections.end(), std::int64_t{0});
  if (!rope.mrope_sections.empty() && (rope.mrope_sections.size() != 3 || sections != rope.rotary_dims / 2))
    inner.problem("contradictory", "mrope_section",
                  fourfold::format("has {} entries of sum {}; three of sum {} are needed",
                                   rope.mrope_sections.size(), sections, rope.rotary_dims / 2));
}

StoredDType read_dtype(FieldReader& fields, FieldReader& root) {
  for (FieldReader* place : {&fields, &root})
    for (const char* name : {"dtype", "torch_dtype"}) {
      const auto text = place->optional_text(name);
      if (!text) continue;
      if (*text == "bfloat16") return StoredDType::bf16;
      if (*text == "float16") return StoredDType::f16;
      if (*text == "float32") return StoredDType::f32;
      place->unsupported(name, *text, "bfloat16, float16, float32");
    }
  return StoredDType::bf16;
}

// What would change the arithmetic in a way that is not implemented is refused, not skipped.
void refuse_unsupported(FieldReader& fields) {
  const std::string activation = fields.optional_text("hidden_act").value_or("silu");
  if (activation != "silu") fields.unsupported("hidden_act", activation, "silu");
  for (const char* name :
       {"attention_bias", "use_sliding_window", "mtp_use_dedicated_embeddings", "qkv_bias"})
    if (fields.optional_bool(name).value_or(false)) fields.unsupported(name, "true", "false");
}

// Both places may say it; a file that contradicts itself is not guessed about.
bool read_tied(FieldReader& fields, FieldReader& root) {
  const auto inner = fields.optional_bool("tie_word_embeddings");
  const auto outer = root.optional_bool("tie_word_embeddings");
  if (inner && outer && *inner != *outer)
    root.problem("contradictory", "tie_word_embeddings",
                 fourfold::format("= {} here and {} in text_config", *outer, *inner));
  return outer.value_or(inner.value_or(false));
}

ModelConfig read_config(const bj::object& document, std::string_view what) {
  ProblemList problems;
  FieldReader root(document, what, "", problems);
  const bj::object* nested = root.optional_object("text_config");
  FieldReader fields(nested == nullptr ? document : *nested, what, nested == nullptr ? "" : "text_config.",
                     problems);
  const auto model_type =
      fields.has("model_type") ? fields.optional_text("model_type") : root.optional_text("model_type");
  if (!model_type) problems.add("missing", "model_type");
  problems.fail_if_any(what);
  const Kind kind = kind_of(*model_type, what);

  ModelConfig config;
  config.family = kind.family;
  config.norm_adds_one = kind.family != Family::qwen3_moe;
  const auto architectures = root.optional_texts("architectures");
  config.architecture = architectures.empty() ? *model_type : architectures.front();
  refuse_unsupported(fields);
  config.hidden_size = fields.required_int("hidden_size", kWidth);
  config.vocab_size = fields.required_int("vocab_size", kVocabulary);
  config.position_limit = fields.required_int("max_position_embeddings", kPositions);
  config.norm_epsilon = fields.required_real("rms_norm_eps", {0, 0.1});
  read_attention(fields, config);
  read_layers(fields, kind, config);
  read_rope(fields, config, what, problems);
  config.mtp_layer_count = fields.optional_int("mtp_num_hidden_layers", {0, 16}).value_or(0);
  config.tie_word_embeddings = read_tied(fields, root);
  config.dtype = read_dtype(fields, root);
  config.eos_ids = fields.optional_int_or_ints("eos_token_id", kTokenId);
  config.bos_id = fields.optional_int("bos_token_id", kTokenId);
  problems.fail_if_any(what);

  ignore_without_effect(fields);
  config.unknown_fields = fields.unread();
  if (nested != nullptr) {
    root.ignore({"model_type", "text_config", "eos_token_id", "bos_token_id"});
    ignore_without_effect(root);
    for (std::string& name : root.unread()) config.unknown_fields.push_back(std::move(name));
  } else {
    std::erase(config.unknown_fields, "text_config");
  }
  return config;
}

}  // namespace

std::string_view family_name(Family family) {
  switch (family) {
    case Family::qwen35: return "Qwen3.5";
    case Family::qwen3_next: return "Qwen3-Next";
    case Family::qwen3_moe: return "Qwen3-MoE";
  }
  return "unknown";
}

ModelConfig parse_model_config(std::string_view text, std::string_view what) {
  const bj::value document = json::parse(text, what, kConfigLimits);
  if (!document.is_object()) fail(Code::bad_checkpoint, "{}: is not a JSON object", what);
  return read_config(document.get_object(), what);
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_model_config(json::read_text_file(path, kConfigLimits.text_bytes_max), path.string());
}

}  // namespace fourfold::checkpoint
