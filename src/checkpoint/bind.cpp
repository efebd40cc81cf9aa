// Names and shapes of the families' tensors, in the order of the model.
#include "checkpoint/bind.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/bind_matrix.h"
#include "checkpoint/tensor_pool.h"

namespace fourfold::checkpoint {
namespace {

class Binder {
 public:
  Binder(TensorPool& pool, const ModelConfig& config) : pool_(pool), config_(config) {}

  ModelWeights bind();

 private:
  AttentionWeights attention(const std::string& prefix);
  DeltaWeights delta(const std::string& prefix);
  void split_projections(const std::string& prefix, const DeltaConfig& sizes, DeltaWeights& weights);
  void interleaved_projections(const std::string& prefix, const DeltaConfig& sizes, DeltaWeights& weights);
  GatedMlp gated_mlp(const std::string& prefix, std::int64_t intermediate);
  std::vector<GatedMlp> stacked_experts(const std::string& prefix, const MoeConfig& sizes);
  MoeWeights experts(const std::string& prefix);
  LayerWeights layer(const std::string& prefix, LayerKind kind);
  MtpWeights mtp(const std::string& prefix);
  void head(ModelWeights& weights);

  Matrix matrix(const std::string& module, std::int64_t rows, std::int64_t columns) {
    return bind_matrix(pool_, module, {rows, columns});
  }
  Vector vector(const std::string& name, std::int64_t size) { return bind_vector(pool_, name, Shape{size}); }

  TensorPool& pool_;
  const ModelConfig& config_;
};

AttentionWeights Binder::attention(const std::string& prefix) {
  const AttentionConfig& sizes = config_.attention;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t query_dim = sizes.head_count * sizes.head_dim;
  const std::int64_t kv_dim = sizes.kv_head_count * sizes.head_dim;
  AttentionWeights weights;
  weights.query = matrix(prefix + "q_proj", query_dim * (sizes.output_gate ? 2 : 1), hidden);
  weights.key = matrix(prefix + "k_proj", kv_dim, hidden);
  weights.value = matrix(prefix + "v_proj", kv_dim, hidden);
  weights.output = matrix(prefix + "o_proj", hidden, query_dim);
  weights.query_norm = vector(prefix + "q_norm.weight", sizes.head_dim);
  weights.key_norm = vector(prefix + "k_norm.weight", sizes.head_dim);
  // ModelOpt hangs the cache scales on the projections, compressed-tensors on the attention module.
  weights.key_scale = bind_optional_scalar(pool_, prefix + "k_proj.k_scale");
  weights.value_scale = bind_optional_scalar(pool_, prefix + "v_proj.v_scale");
  if (!weights.key_scale) weights.key_scale = bind_optional_scalar(pool_, prefix + "k_scale");
  if (!weights.value_scale) weights.value_scale = bind_optional_scalar(pool_, prefix + "v_scale");
  return weights;
}

void Binder::split_projections(const std::string& prefix, const DeltaConfig& sizes, DeltaWeights& weights) {
  const std::int64_t hidden = config_.hidden_size;
  weights.qkv = matrix(prefix + "in_proj_qkv", sizes.conv_dim(), hidden);
  weights.gate = matrix(prefix + "in_proj_z", sizes.value_dim(), hidden);
  weights.beta = matrix(prefix + "in_proj_b", sizes.value_head_count, hidden);
  weights.decay = matrix(prefix + "in_proj_a", sizes.value_head_count, hidden);
}

// Qwen3-Next: for each key head its query rows, key rows, value rows and gate rows; likewise b rows, then a
// rows.
void Binder::interleaved_projections(const std::string& prefix, const DeltaConfig& sizes,
                                     DeltaWeights& weights) {
  const std::int64_t hidden = config_.hidden_size;
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
  const Matrix qkvz = matrix(prefix + "in_proj_qkvz", sizes.key_head_count * stride, hidden);
  weights.qkv = pick(qkvz, stride, {{0, key_rows}, {key_rows, key_rows}, {2 * key_rows, value_rows}});
  weights.gate = pick(qkvz, stride, {{2 * key_rows + value_rows, value_rows}});
  const Matrix ba = matrix(prefix + "in_proj_ba", 2 * sizes.value_head_count, hidden);
  weights.beta = pick(ba, 2 * group, {{0, group}});
  weights.decay = pick(ba, 2 * group, {{group, group}});
}

DeltaWeights Binder::delta(const std::string& prefix) {
  const DeltaConfig& sizes = *config_.delta;
  DeltaWeights weights;
  if (pool_.has_prefix(prefix + "in_proj_qkvz."))
    interleaved_projections(prefix, sizes, weights);
  else
    split_projections(prefix, sizes, weights);
  weights.output = matrix(prefix + "out_proj", config_.hidden_size, sizes.value_dim());
  weights.conv = bind_vector(pool_, prefix + "conv1d.weight", Shape{sizes.conv_dim(), 1, sizes.conv_taps});
  weights.a_log = vector(prefix + "A_log", sizes.value_head_count);
  weights.dt_bias = vector(prefix + "dt_bias", sizes.value_head_count);
  weights.norm = vector(prefix + "norm.weight", sizes.value_head_dim);
  return weights;
}

GatedMlp Binder::gated_mlp(const std::string& prefix, std::int64_t intermediate) {
  return {.gate = matrix(prefix + "gate_proj", intermediate, config_.hidden_size),
          .up = matrix(prefix + "up_proj", intermediate, config_.hidden_size),
          .down = matrix(prefix + "down_proj", config_.hidden_size, intermediate)};
}

std::vector<GatedMlp> Binder::stacked_experts(const std::string& prefix, const MoeConfig& sizes) {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t rows = sizes.intermediate_size;
  const Matrix gate_up = bind_stacked(pool_, prefix + "gate_up_proj", sizes.expert_count, {2 * rows, hidden});
  const Matrix down = bind_stacked(pool_, prefix + "down_proj", sizes.expert_count, {hidden, rows});
  // A problem noted above leaves no rows to slice; the error comes at the end.
  if (gate_up.stored_rows() != gate_up.rows || down.stored_rows() != down.rows) return {};
  std::vector<GatedMlp> experts;
  for (std::int64_t expert = 0; expert < sizes.expert_count; ++expert)
    experts.push_back({.gate = slice_rows(gate_up, {2 * rows * expert, rows}),
                       .up = slice_rows(gate_up, {2 * rows * expert + rows, rows}),
                       .down = slice_rows(down, {hidden * expert, hidden})});
  return experts;
}

MoeWeights Binder::experts(const std::string& prefix) {
  const MoeConfig& sizes = *config_.moe;
  MoeWeights weights;
  weights.router = matrix(prefix + "gate", sizes.expert_count, config_.hidden_size);
  if (pool_.has(prefix + "experts.gate_up_proj")) {
    weights.experts = stacked_experts(prefix + "experts.", sizes);
  } else {
    for (std::int64_t expert = 0; expert < sizes.expert_count; ++expert)
      weights.experts.push_back(
          gated_mlp(fourfold::format("{}experts.{}.", prefix, expert), sizes.intermediate_size));
  }
  if (sizes.shared_intermediate_size > 0) {
    weights.shared = gated_mlp(prefix + "shared_expert.", sizes.shared_intermediate_size);
    weights.shared_gate = matrix(prefix + "shared_expert_gate", 1, config_.hidden_size);
  }
  return weights;
}

LayerWeights Binder::layer(const std::string& prefix, LayerKind kind) {
  LayerWeights weights;
  weights.input_norm = vector(prefix + "input_layernorm.weight", config_.hidden_size);
  weights.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", config_.hidden_size);
  if (kind.mixer == MixerKind::full_attention)
    weights.mixer = attention(prefix + "self_attn.");
  else
    weights.mixer = delta(prefix + "linear_attn.");
  if (kind.mlp == MlpKind::experts)
    weights.mlp = experts(prefix + "mlp.");
  else
    weights.mlp = gated_mlp(prefix + "mlp.", config_.dense_intermediate_size);
  return weights;
}

MtpWeights Binder::mtp(const std::string& prefix) {
  const std::int64_t hidden = config_.hidden_size;
  MtpWeights weights;
  weights.embedding_norm = vector(prefix + "pre_fc_norm_embedding.weight", hidden);
  weights.hidden_norm = vector(prefix + "pre_fc_norm_hidden.weight", hidden);
  weights.combine = matrix(prefix + "fc", hidden, 2 * hidden);
  const LayerKind kind{MixerKind::full_attention, config_.moe ? MlpKind::experts : MlpKind::dense};
  const std::int64_t layer_count = std::max<std::int64_t>(1, pool_.count_numbered(prefix + "layers."));
  for (std::int64_t i = 0; i < layer_count; ++i)
    weights.layers.push_back(layer(fourfold::format("{}layers.{}.", prefix, i), kind));
  weights.final_norm = vector(prefix + "norm.weight", hidden);
  return weights;
}

void Binder::head(ModelWeights& weights) {
  weights.head_is_embedding = config_.tie_word_embeddings;
  if (weights.head_is_embedding) {
    weights.head = weights.embedding;
    pool_.skip("lm_head.weight");  // some exports write the tied copy as well
    return;
  }
  weights.head = matrix("lm_head", config_.vocab_size, config_.hidden_size);
}

ModelWeights Binder::bind() {
  // The vision wrapper puts the text model one level down.
  const std::string prefix = pool_.has_prefix("model.language_model.") ? "model.language_model." : "model.";
  ModelWeights weights;
  weights.embedding = matrix(prefix + "embed_tokens", config_.vocab_size, config_.hidden_size);
  for (std::int64_t i = 0; i < config_.layer_count(); ++i)
    weights.layers.push_back(
        layer(fourfold::format("{}layers.{}.", prefix, i), config_.layers[static_cast<std::size_t>(i)]));
  weights.final_norm = vector(prefix + "norm.weight", config_.hidden_size);
  head(weights);
  if (config_.family != Family::qwen3_moe)
    for (const char* mtp_prefix : {"mtp.", "model.mtp."})
      if (!weights.mtp && pool_.has_prefix(mtp_prefix)) weights.mtp = mtp(mtp_prefix);
  return weights;
}

void visit_mlp(const GatedMlp& mlp, const std::function<void(const Matrix&)>& visit) {
  for (const Matrix* matrix : {&mlp.gate, &mlp.up, &mlp.down}) visit(*matrix);
}

void visit_layer(const LayerWeights& layer, const std::function<void(const Matrix&)>& visit) {
  if (const auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
    for (const Matrix* matrix : {&attention->query, &attention->key, &attention->value, &attention->output})
      visit(*matrix);
  } else {
    const auto& delta = std::get<DeltaWeights>(layer.mixer);
    for (const Matrix* matrix : {&delta.qkv, &delta.gate, &delta.beta, &delta.decay, &delta.output})
      visit(*matrix);
  }
  if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp)) return visit_mlp(*dense, visit);
  const auto& moe = std::get<MoeWeights>(layer.mlp);
  visit(moe.router);
  for (const GatedMlp& expert : moe.experts) visit_mlp(expert, visit);
  if (moe.shared) visit_mlp(*moe.shared, visit);
  if (moe.shared_gate) visit(*moe.shared_gate);
}

}  // namespace

BoundModel bind_model(const Checkpoint& checkpoint, const ModelConfig& config) {
  TensorPool pool(checkpoint);
  BoundModel model;
  model.weights = Binder(pool, config).bind();
  model.skipped = pool.skip_unused();
  pool.finish();
  return model;
}

void for_each_matrix(const ModelWeights& weights, const std::function<void(const Matrix&)>& visit) {
  visit(weights.embedding);
  for (const LayerWeights& layer : weights.layers) visit_layer(layer, visit);
  if (!weights.head_is_embedding) visit(weights.head);
  if (!weights.mtp) return;
  visit(weights.mtp->combine);
  for (const LayerWeights& layer : weights.mtp->layers) visit_layer(layer, visit);
}

}  // namespace fourfold::checkpoint
