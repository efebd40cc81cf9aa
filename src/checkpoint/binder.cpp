#include "checkpoint/binder.h"

#include <span>

#include "base/error.h"
#include "base/format.h"

namespace fourfold::checkpoint {

AttentionWeights Binder::attention(const std::string& prefix, const AttentionNames& names) {
  const AttentionConfig& sizes = config_.attention;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t query_dim = sizes.head_count * sizes.head_dim;
  const std::int64_t kv_dim = sizes.kv_head_count * sizes.head_dim;
  const std::string query = prefix + names.query, key = prefix + names.key, value = prefix + names.value;
  AttentionWeights weights;
  weights.query = matrix(query, query_dim * (sizes.output_gate ? 2 : 1), hidden);
  weights.key = matrix(key, kv_dim, hidden);
  weights.value = matrix(value, kv_dim, hidden);
  weights.output = matrix(prefix + names.output, hidden, query_dim);
  if (sizes.bias) {
    weights.query_bias = vector(query + ".bias", weights.query.rows);
    weights.key_bias = vector(key + ".bias", kv_dim);
    weights.value_bias = vector(value + ".bias", kv_dim);
  }
  if (sizes.output_bias) weights.output_bias = vector(prefix + names.output + ".bias", hidden);
  if (sizes.sinks) weights.sinks = vector(prefix + "sinks", sizes.head_count);
  if (sizes.qk_norm != QkNorm::none) {
    const bool whole = sizes.qk_norm == QkNorm::all_heads;
    weights.query_norm = vector(prefix + "q_norm.weight", whole ? query_dim : sizes.head_dim);
    weights.key_norm = vector(prefix + "k_norm.weight", whole ? kv_dim : sizes.head_dim);
  }
  // ModelOpt hangs the cache scales on the projections, compressed-tensors on the attention module.
  weights.key_scale = bind_optional_scalar(pool_, key + ".k_scale");
  weights.value_scale = bind_optional_scalar(pool_, value + ".v_scale");
  if (!weights.key_scale) weights.key_scale = bind_optional_scalar(pool_, prefix + "k_scale");
  if (!weights.value_scale) weights.value_scale = bind_optional_scalar(pool_, prefix + "v_scale");
  return weights;
}

namespace {

// The same rows of each head.
Matrix rows_of_heads(const Matrix& whole, std::int64_t head_count, std::int64_t stride,
                     std::span<const RowRange> of_head) {
  Matrix picked = whole;
  picked.rows = 0;
  for (std::int64_t head = 0; head < head_count; ++head)
    for (const RowRange& range : of_head) {
      picked.gather.push_back({head * stride + range.first, range.count, range.step});
      picked.rows += range.count;
    }
  return picked;
}
Matrix rows_of_heads(const Matrix& whole, std::int64_t head_count, std::int64_t stride, RowRange of_head) {
  return rows_of_heads(whole, head_count, stride, std::span(&of_head, 1));
}

// The rows whose results RoPE turns: those of a pair half of them apart, wherever the checkpoint has them.
std::vector<RowRange> turned_rows(std::int64_t first, const LatentConfig& sizes) {
  if (!sizes.interleaved) return {{first, sizes.turned_dim}};
  const std::int64_t half = sizes.turned_dim / 2;
  return {{first, half, 2}, {first + 1, half, 2}};
}

}  // namespace

LatentWeights Binder::latent_attention(const std::string& prefix) {
  const LatentConfig& sizes = *config_.latent;
  const std::int64_t heads = config_.attention.head_count, hidden = config_.hidden_size;
  LatentWeights weights;
  if (sizes.query_rank > 0) {
    weights.query_down = matrix(prefix + "q_a_proj", sizes.query_rank, hidden);
    weights.query_norm = vector(prefix + "q_a_layernorm.weight", sizes.query_rank);
  }
  const std::int64_t query_dim = sizes.plain_dim + sizes.turned_dim;
  const Matrix query = matrix(prefix + (sizes.query_rank > 0 ? "q_b_proj" : "q_proj"), heads * query_dim,
                              sizes.query_rank > 0 ? sizes.query_rank : hidden);
  weights.plain_query = rows_of_heads(query, heads, query_dim, {0, sizes.plain_dim});
  weights.turned_query = rows_of_heads(query, heads, query_dim, turned_rows(sizes.plain_dim, sizes));

  const Matrix down = matrix(prefix + "kv_a_proj_with_mqa", sizes.latent_dim + sizes.turned_dim, hidden);
  weights.latent = rows_of_heads(down, 1, 0, {0, sizes.latent_dim});
  weights.turned_key = rows_of_heads(down, 1, 0, turned_rows(sizes.latent_dim, sizes));
  weights.latent_norm = vector(prefix + "kv_a_layernorm.weight", sizes.latent_dim);

  const std::int64_t up_rows = sizes.plain_dim + sizes.value_dim;
  const Matrix up = matrix(prefix + "kv_b_proj", heads * up_rows, sizes.latent_dim);
  weights.key_up = rows_of_heads(up, heads, up_rows, {0, sizes.plain_dim});
  weights.value_up = rows_of_heads(up, heads, up_rows, {sizes.plain_dim, sizes.value_dim});
  weights.output = matrix(prefix + "o_proj", hidden, heads * sizes.value_dim);
  // Exports calibrated for an FP8 cache have scales of keys and values; a latent's pages are bf16. ModelOpt
  // names the projections that other models have.
  for (const char* scale : {"k_proj.k_scale", "v_proj.v_scale", "k_scale", "v_scale"})
    pool_.skip(prefix + scale);
  return weights;
}

GatedMlp Binder::gated_mlp(const std::string& prefix, std::int64_t intermediate, const MlpNames& names) {
  return {.gate = matrix(prefix + names.gate, intermediate, config_.hidden_size),
          .up = matrix(prefix + names.up, intermediate, config_.hidden_size),
          .down = matrix(prefix + names.down, config_.hidden_size, intermediate)};
}

void name_experts(std::vector<GatedMlp>& experts, const std::string& prefix, const MlpNames& names) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::string expert = fourfold::format("{}{}.", prefix, i);
    experts[i].gate.expert_module = expert + names.gate;
    experts[i].up.expert_module = expert + names.up;
    experts[i].down.expert_module = expert + names.down;
  }
}

std::vector<GatedMlp> Binder::stacked_experts(const std::string& prefix, const MlpNames& names) {
  const MoeConfig& sizes = *config_.moe;
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t rows = sizes.intermediate_size;
  const std::vector<Matrix> gate_up =
      bind_experts(pool_, prefix + "gate_up_proj", sizes.expert_count, 2, {rows, hidden});
  const std::vector<Matrix> down =
      bind_experts(pool_, prefix + "down_proj", sizes.expert_count, 1, {hidden, rows});
  if (gate_up.empty() || down.empty()) return {};  // after a problem, which is told at the end
  std::vector<GatedMlp> experts;
  for (std::size_t i = 0; i < down.size(); ++i)
    experts.push_back({.gate = gate_up[2 * i], .up = gate_up[2 * i + 1], .down = down[i]});
  name_experts(experts, prefix, names);
  return experts;
}

std::vector<GatedMlp> Binder::routed_experts(const std::string& prefix, const MlpNames& names) {
  if (pool_.has(prefix + "gate_up_proj")) return stacked_experts(prefix, names);
  std::vector<GatedMlp> experts;
  for (const char* part : {names.gate, names.up, names.down})
    if (const std::string name = fourfold::format("{}0.{}.pre_quant_scale", prefix, part); pool_.has(name))
      fail_with_hint(Code::unsupported_model, "Take an export of the model in NVFP4 without AWQ.",
                     "{}: routed experts of NVFP4_AWQ are not supported: with the factors of their inputs "
                     "multiplied in they would not be NVFP4, and take many times the memory",
                     name);
  for (std::int64_t expert = 0; expert < config_.moe->expert_count; ++expert)
    experts.push_back(
        gated_mlp(fourfold::format("{}{}.", prefix, expert), config_.moe->intermediate_size, names));
  return experts;
}

void Binder::layer_norms(const std::string& prefix, LayerWeights& layer) {
  layer.input_norm = vector(prefix + "input_layernorm.weight", config_.hidden_size);
  layer.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", config_.hidden_size);
}

void Binder::mlp(const std::string& prefix, MlpKind kind, LayerWeights& layer) {
  if (kind == MlpKind::dense) {
    layer.mlp = gated_mlp(prefix, config_.dense_intermediate_size);
    return;
  }
  const MoeConfig& sizes = *config_.moe;
  MoeWeights moe;
  moe.router = matrix(prefix + "gate", sizes.expert_count, config_.hidden_size);
  if (sizes.choice_bias)
    moe.choice_bias = vector(prefix + "gate.e_score_correction_bias", sizes.expert_count);
  moe.experts = routed_experts(prefix + "experts.");
  if (sizes.shared_intermediate_size > 0)
    moe.shared = gated_mlp(prefix + "shared_experts.", sizes.shared_intermediate_size);
  layer.mlp = std::move(moe);
}

void Binder::head(ModelWeights& weights, const std::string& prefix) {
  weights.head_is_embedding = config_.tie_word_embeddings;
  if (weights.head_is_embedding) {
    weights.head = weights.embedding;
    pool_.skip(prefix + "lm_head.weight");  // some exports write the tied copy as well
    return;
  }
  weights.head = matrix(prefix + "lm_head", config_.vocab_size, config_.hidden_size);
}

// The copies of embedding and head are those of the model, and not read again.
MtpWeights Binder::nextn(const std::string& prefix, BindLayer bind_layer) {
  const std::int64_t hidden = config_.hidden_size;
  MtpWeights weights;
  weights.embedding_norm = vector(prefix + "enorm.weight", hidden);
  weights.hidden_norm = vector(prefix + "hnorm.weight", hidden);
  weights.combine = matrix(prefix + "eh_proj", hidden, 2 * hidden);
  weights.layers.push_back(bind_layer(*this, prefix, MlpKind::experts));
  weights.final_norm = vector(prefix + "shared_head.norm.weight", hidden);
  pool_.skip_prefix(prefix + "embed_tokens.");
  pool_.skip_prefix(prefix + "shared_head.head.");
  return weights;
}

ModelWeights Binder::layers(const std::string& wrapper, BindLayer bind_layer) {
  const std::string model = wrapper + "model.";
  ModelWeights weights;
  weights.embedding = matrix(model + "embed_tokens", config_.vocab_size, config_.hidden_size);
  for (std::int64_t i = 0; i < config_.layer_count(); ++i)
    weights.layers.push_back(bind_layer(*this, fourfold::format("{}layers.{}.", model, i),
                                        config_.layers[static_cast<std::size_t>(i)].mlp));
  weights.final_norm = vector(model + "norm.weight", config_.hidden_size);
  head(weights, wrapper);
  return weights;
}

ModelWeights Binder::layers_and_nextn(const std::string& wrapper, BindLayer bind_layer) {
  ModelWeights weights = layers(wrapper, bind_layer);
  const std::string next = fourfold::format("{}model.layers.{}.", wrapper, config_.layer_count());
  if (config_.moe && pool_.has_prefix(next + "eh_proj.")) weights.mtp = nextn(next, bind_layer);
  return weights;
}

}  // namespace fourfold::checkpoint
