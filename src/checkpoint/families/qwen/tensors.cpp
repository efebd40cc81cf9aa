// Tensors of Qwen3.5, Qwen3-Next and Qwen3-MoE, in the order of the model.
#include <algorithm>

#include "base/format.h"
#include "checkpoint/families/qwen/qwen.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {
namespace qwen {
namespace {

void split_projections(Binder& b, const std::string& prefix, DeltaWeights& weights) {
  const DeltaConfig& sizes = *b.config().delta;
  const std::int64_t hidden = b.config().hidden_size;
  weights.qkv = b.matrix(prefix + "in_proj_qkv", sizes.conv_dim(), hidden);
  weights.gate = b.matrix(prefix + "in_proj_z", sizes.value_dim(), hidden);
  weights.beta = b.matrix(prefix + "in_proj_b", sizes.value_head_count, hidden);
  weights.decay = b.matrix(prefix + "in_proj_a", sizes.value_head_count, hidden);
}

// Qwen3-Next: for each key head its query rows, key rows, value rows and gate rows; likewise b rows, then a
// rows.
void interleaved_projections(Binder& b, const std::string& prefix, DeltaWeights& weights) {
  const DeltaConfig& sizes = *b.config().delta;
  const std::int64_t hidden = b.config().hidden_size;
  const std::int64_t group = sizes.values_per_key();
  const std::int64_t key_rows = sizes.key_head_dim;
  const std::int64_t value_rows = group * sizes.value_head_dim;
  const std::int64_t stride = 2 * key_rows + 2 * value_rows;
  const auto pick = [&](const Matrix& source, std::int64_t step, std::initializer_list<RowRange> parts) {
    Matrix picked = source;
    picked.rows = 0;
    for (const RowRange& part : parts)
      for (std::int64_t head = 0; head < sizes.key_head_count; ++head) {
        picked.gather.push_back({head * step + part.first, part.count});
        picked.rows += part.count;
      }
    return picked;
  };
  const Matrix qkvz = b.matrix(prefix + "in_proj_qkvz", sizes.key_head_count * stride, hidden);
  weights.qkv = pick(qkvz, stride, {{0, key_rows}, {key_rows, key_rows}, {2 * key_rows, value_rows}});
  weights.gate = pick(qkvz, stride, {{2 * key_rows + value_rows, value_rows}});
  const Matrix ba = b.matrix(prefix + "in_proj_ba", 2 * sizes.value_head_count, hidden);
  weights.beta = pick(ba, 2 * group, {{0, group}});
  weights.decay = pick(ba, 2 * group, {{group, group}});
}

DeltaWeights delta(Binder& b, const std::string& prefix) {
  const DeltaConfig& sizes = *b.config().delta;
  DeltaWeights weights;
  if (b.pool().has_prefix(prefix + "in_proj_qkvz."))
    interleaved_projections(b, prefix, weights);
  else
    split_projections(b, prefix, weights);
  weights.output = b.matrix(prefix + "out_proj", b.config().hidden_size, sizes.value_dim());
  weights.conv = bind_vector(b.pool(), prefix + "conv1d.weight", Shape{sizes.conv_dim(), 1, sizes.conv_taps});
  weights.a_log = b.vector(prefix + "A_log", sizes.value_head_count);
  weights.dt_bias = b.vector(prefix + "dt_bias", sizes.value_head_count);
  weights.norm = b.vector(prefix + "norm.weight", sizes.value_head_dim);
  return weights;
}

MoeWeights experts(Binder& b, const std::string& prefix) {
  const MoeConfig& sizes = *b.config().moe;
  MoeWeights weights;
  weights.router = b.matrix(prefix + "gate", sizes.expert_count, b.config().hidden_size);
  weights.experts = b.routed_experts(prefix + "experts.");
  if (sizes.shared_intermediate_size > 0) {
    weights.shared = b.gated_mlp(prefix + "shared_expert.", sizes.shared_intermediate_size);
    weights.shared_gate = b.matrix(prefix + "shared_expert_gate", 1, b.config().hidden_size);
  }
  return weights;
}

LayerWeights layer(Binder& b, const std::string& prefix, LayerKind kind) {
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  if (kind.mixer == MixerKind::full_attention)
    weights.mixer = b.attention(prefix + "self_attn.");
  else
    weights.mixer = delta(b, prefix + "linear_attn.");
  if (kind.mlp == MlpKind::experts)
    weights.mlp = experts(b, prefix + "mlp.");
  else
    weights.mlp = b.gated_mlp(prefix + "mlp.", b.config().dense_intermediate_size);
  return weights;
}

MtpWeights mtp(Binder& b, const std::string& prefix) {
  const std::int64_t hidden = b.config().hidden_size;
  MtpWeights weights;
  weights.embedding_norm = b.vector(prefix + "pre_fc_norm_embedding.weight", hidden);
  weights.hidden_norm = b.vector(prefix + "pre_fc_norm_hidden.weight", hidden);
  weights.combine = b.matrix(prefix + "fc", hidden, 2 * hidden);
  const LayerKind kind{MixerKind::full_attention, b.config().moe ? MlpKind::experts : MlpKind::dense};
  const std::int64_t layer_count = std::max<std::int64_t>(1, b.pool().count_numbered(prefix + "layers."));
  for (std::int64_t i = 0; i < layer_count; ++i)
    weights.layers.push_back(layer(b, fourfold::format("{}layers.{}.", prefix, i), kind));
  weights.final_norm = b.vector(prefix + "norm.weight", hidden);
  return weights;
}

}  // namespace

ModelWeights bind(Binder& b) {
  const ModelConfig& config = b.config();
  // The vision wrapper puts the text model one level down.
  const std::string prefix =
      b.pool().has_prefix("model.language_model.") ? "model.language_model." : "model.";
  ModelWeights weights;
  weights.embedding = b.matrix(prefix + "embed_tokens", config.vocab_size, config.hidden_size);
  for (std::int64_t i = 0; i < config.layer_count(); ++i)
    weights.layers.push_back(
        layer(b, fourfold::format("{}layers.{}.", prefix, i), config.layers[static_cast<std::size_t>(i)]));
  weights.final_norm = b.vector(prefix + "norm.weight", config.hidden_size);
  b.head(weights);
  if (config.family != &kQwen3Moe)
    for (const char* mtp_prefix : {"mtp.", "model.mtp."})
      if (!weights.mtp && b.pool().has_prefix(mtp_prefix)) weights.mtp = mtp(b, mtp_prefix);
  return weights;
}

}  // namespace qwen

namespace {
constexpr std::string_view kQwen35Types[] = {"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_text"};
constexpr std::string_view kQwen3NextTypes[] = {"qwen3_next"};
constexpr std::string_view kQwen3MoeTypes[] = {"qwen3_moe"};
}  // namespace

constinit const Family kQwen35{"Qwen3.5", kQwen35Types, qwen::read_config, qwen::bind, &kQwen35Maker};
constinit const Family kQwen3Next{"Qwen3-Next", kQwen3NextTypes, qwen::read_config, qwen::bind,
                                  &kQwen3NextMaker};
constinit const Family kQwen3Moe{"Qwen3-MoE", kQwen3MoeTypes, qwen::read_config, qwen::bind, &kQwen3MoeMaker};

}  // namespace fourfold::checkpoint
