// A family that nobody released, as docs/adding-a-model.md adds one: attention with biases and without norms,
// RoPE on half of each head, the first layers dense, then experts behind a router of sigmoids beside a shared
// one. It computes what GLM-4 MoE does, under names of its own.
#include "base/format.h"
#include "checkpoint/family.h"
#include "checkpoint/write/tensor_list.h"

namespace fourfold::checkpoint {
namespace {

constexpr AttentionNames kLook{.query = "north", .key = "east", .value = "south", .output = "west"};
constexpr MlpNames kStone{.gate = "open", .up = "widen", .down = "narrow"};

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  read_head_sizes(fields, config);
  config.attention.bias = true;
  config.attention.qk_norm = QkNorm::none;
  const std::int64_t count = fields.required_int("pebble_count", kLayers);
  const std::int64_t flat = fields.required_int("flat_count", {0, count});
  for (std::int64_t i = 0; i < count; ++i)
    config.layers.push_back({MixerKind::full_attention, i < flat ? MlpKind::dense : MlpKind::experts});
  config.dense_intermediate_size = fields.required_int("flat_width", kWidth);
  MoeConfig moe;
  moe.expert_count = fields.required_int("stone_count", kExperts);
  moe.experts_per_token = fields.required_int("stones_per_token", kExperts);
  moe.intermediate_size = fields.required_int("stone_width", kWidth);
  moe.shared_intermediate_size = fields.required_int("river_width", kWidth);
  moe.sigmoid_scores = moe.choice_bias = true;
  check_experts_per_token(fields, "stone_count", moe);
  config.moe = moe;
  read_rope(from, 0.5, config);
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind kind) {
  const ModelConfig& config = b.config();
  LayerWeights layer;
  layer.input_norm = b.vector(prefix + "before.weight", config.hidden_size);
  layer.post_attention_norm = b.vector(prefix + "between.weight", config.hidden_size);
  layer.mixer = b.attention(prefix + "look.", kLook);
  if (kind == MlpKind::dense) {
    layer.mlp = b.gated_mlp(prefix + "flat.", config.dense_intermediate_size, kStone);
    return layer;
  }
  MoeWeights moe;
  moe.router = b.matrix(prefix + "choose", config.moe->expert_count, config.hidden_size);
  moe.choice_bias = b.vector(prefix + "choose.lean", config.moe->expert_count);
  moe.experts = b.routed_experts(prefix + "stones.", kStone);
  moe.shared = b.gated_mlp(prefix + "river.", config.moe->shared_intermediate_size, kStone);
  layer.mlp = std::move(moe);
  return layer;
}

ModelWeights bind(Binder& b) {
  const ModelConfig& config = b.config();
  ModelWeights weights;
  weights.embedding = b.matrix("tokens", config.vocab_size, config.hidden_size);
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    weights.layers.push_back(bind_layer(b, fourfold::format("pebbles.{}.", i), config.layers[i].mlp));
  weights.final_norm = b.vector("after.weight", config.hidden_size);
  b.head(weights);
  return weights;
}

// ---- models to test with ----

using Fill = PlannedTensor::Fill;

std::vector<PlannedTensor> plan(const ModelShape& s, const StorageScheme&) {
  TensorList list(s, 0);
  list.add("tokens.weight", {s.vocab, s.hidden}, Fill::normal, 1, 0);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string prefix = fourfold::format("pebbles.{}.", i);
    list.norm(prefix + "before.weight", s.hidden);
    list.attention(prefix + "look.", kLook);
    list.norm(prefix + "between.weight", s.hidden);
    if (i < s.dense_layers) {
      list.gated_mlp(prefix + "flat.", s.dense_intermediate, kStone);
      continue;
    }
    list.linear(prefix + "choose", s.experts, s.hidden, 3);  // a sharp router
    list.add(prefix + "choose.lean", {s.experts}, Fill::normal, 0.3, 0);
    for (std::int64_t e = 0; e < s.experts; ++e)
      list.gated_mlp(fourfold::format("{}stones.{}.", prefix, e), s.intermediate, kStone);
    list.gated_mlp(prefix + "river.", s.shared, kStone);
  }
  list.norm("after.weight", s.hidden);
  list.linear("lm_head", s.vocab, s.hidden, 3);
  return list.take();
}

void write_config(JsonWriter& json, const ModelShape& s, const TokenIds& ids) {
  json.member("model_type", "pebble").member("vocab_size", s.vocab).member("hidden_size", s.hidden);
  json.member("num_attention_heads", s.heads).member("num_key_value_heads", s.kv_heads);
  json.member("head_dim", s.head_dim).member("rms_norm_eps", 1e-5).member("rope_theta", s.theta);
  json.member("max_position_embeddings", s.positions).member("tie_word_embeddings", false);
  json.member("eos_token_id", ids.end_of_text).member("pebble_count", s.layers);
  json.member("flat_count", s.dense_layers).member("flat_width", s.dense_intermediate);
  json.member("stone_count", s.experts).member("stones_per_token", s.experts_per_token);
  json.member("stone_width", s.intermediate).member("river_width", s.shared);
}

// The sizes of tiny-glm.
constexpr ModelShape kTiny[] = {{.name = "tiny-pebble",
                                 .what = "Pebble, for tests",
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
                                 .mtp = false,
                                 .dense_layers = 1,
                                 .dense_intermediate = 192,
                                 .attention_bias = true}};

constexpr std::string_view kTypes[] = {"pebble"};
constinit const FamilyMaker kPebbleMaker{plan, write_config, kTiny, {}};

}  // namespace

extern constinit const Family kPebble{"Pebble", kTypes, read_config, bind, &kPebbleMaker};

}  // namespace fourfold::checkpoint
