#include "checkpoint/binder.h"

#include "base/format.h"

namespace fourfold::checkpoint {

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
  if (sizes.bias) {
    weights.query_bias = vector(prefix + "q_proj.bias", weights.query.rows);
    weights.key_bias = vector(prefix + "k_proj.bias", kv_dim);
    weights.value_bias = vector(prefix + "v_proj.bias", kv_dim);
  }
  if (sizes.output_bias) weights.output_bias = vector(prefix + "o_proj.bias", hidden);
  if (sizes.sinks) weights.sinks = vector(prefix + "sinks", sizes.head_count);
  if (sizes.qk_norm != QkNorm::none) {
    const bool whole = sizes.qk_norm == QkNorm::all_heads;
    weights.query_norm = vector(prefix + "q_norm.weight", whole ? query_dim : sizes.head_dim);
    weights.key_norm = vector(prefix + "k_norm.weight", whole ? kv_dim : sizes.head_dim);
  }
  // ModelOpt hangs the cache scales on the projections, compressed-tensors on the attention module.
  weights.key_scale = bind_optional_scalar(pool_, prefix + "k_proj.k_scale");
  weights.value_scale = bind_optional_scalar(pool_, prefix + "v_proj.v_scale");
  if (!weights.key_scale) weights.key_scale = bind_optional_scalar(pool_, prefix + "k_scale");
  if (!weights.value_scale) weights.value_scale = bind_optional_scalar(pool_, prefix + "v_scale");
  return weights;
}

GatedMlp Binder::gated_mlp(const std::string& prefix, std::int64_t intermediate, const MlpNames& names) {
  return {.gate = matrix(prefix + names.gate, intermediate, config_.hidden_size),
          .up = matrix(prefix + names.up, intermediate, config_.hidden_size),
          .down = matrix(prefix + names.down, config_.hidden_size, intermediate)};
}

std::vector<GatedMlp> Binder::stacked_experts(const std::string& prefix) {
  const MoeConfig& sizes = *config_.moe;
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

std::vector<GatedMlp> Binder::routed_experts(const std::string& prefix, const MlpNames& names) {
  if (pool_.has(prefix + "experts.gate_up_proj")) return stacked_experts(prefix + "experts.");
  std::vector<GatedMlp> experts;
  for (std::int64_t expert = 0; expert < config_.moe->expert_count; ++expert)
    experts.push_back(
        gated_mlp(fourfold::format("{}experts.{}.", prefix, expert), config_.moe->intermediate_size, names));
  return experts;
}

void Binder::layer_norms(const std::string& prefix, LayerWeights& layer) {
  layer.input_norm = vector(prefix + "input_layernorm.weight", config_.hidden_size);
  layer.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", config_.hidden_size);
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

}  // namespace fourfold::checkpoint
