#include "tests/model/made_up_family/pebble.h"

#include "base/format.h"

namespace fourfold::checkpoint {
namespace {

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  read_head_sizes(fields, config);
  config.attention.bias = true;
  config.attention.qk_norm = QkNorm::none;
  const std::int64_t layer_count = fields.required_int("pebble_count", kLayers);
  config.layers.assign(static_cast<std::size_t>(layer_count), {MixerKind::full_attention, MlpKind::dense});
  config.dense_intermediate_size = fields.required_int("pebble_width", kWidth);
  read_rope(from, 0.5, config);
}

ModelWeights bind(Binder& b) {
  const ModelConfig& config = b.config();
  ModelWeights weights;
  weights.embedding = b.matrix("tokens", config.vocab_size, config.hidden_size);
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    const std::string prefix = fourfold::format("pebbles.{}.", i);
    LayerWeights layer;
    layer.input_norm = b.vector(prefix + "before.weight", config.hidden_size);
    layer.post_attention_norm = b.vector(prefix + "between.weight", config.hidden_size);
    layer.mixer = b.attention(prefix + "look.");
    layer.mlp = b.gated_mlp(prefix + "think.", config.dense_intermediate_size,
                            {.gate = "open", .up = "widen", .down = "narrow"});
    weights.layers.push_back(std::move(layer));
  }
  weights.final_norm = b.vector("after.weight", config.hidden_size);
  b.head(weights);
  return weights;
}

constexpr std::string_view kTypes[] = {"pebble"};

}  // namespace

constinit const Family kPebble{"Pebble", kTypes, read_config, bind, nullptr};

}  // namespace fourfold::checkpoint
