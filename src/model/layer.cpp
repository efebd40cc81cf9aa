#include "model/layer.h"

#include <cmath>

#include "model/rope.h"

namespace fourfold::model {

using backend::ValueId;

ValueId LayerBuilder::layer(const std::string& prefix, ValueId x, const checkpoint::LayerWeights& weights,
                            std::int64_t window) {
  const ValueId mixer_in = b_.rms_norm(prefix + "input_norm", x, weights.input_norm, config_);
  const auto* full = std::get_if<checkpoint::AttentionWeights>(&weights.mixer);
  const auto* compressed = std::get_if<checkpoint::LatentWeights>(&weights.mixer);
  const ValueId mixed = full != nullptr         ? attention(prefix + "attention.", mixer_in, *full, window)
                        : compressed != nullptr ? latent(prefix + "attention.", mixer_in, *compressed)
                                                : delta(prefix + "delta.", mixer_in,
                                                        std::get<checkpoint::DeltaWeights>(weights.mixer));
  x = b_.add(prefix + "after_mixer", x, b_.all_reduce(prefix + "mixer_sum", mixed));

  const ValueId mlp_in = b_.rms_norm(prefix + "post_attention_norm", x, weights.post_attention_norm, config_);
  const auto* moe = std::get_if<checkpoint::MoeWeights>(&weights.mlp);
  const ValueId made =
      moe != nullptr ? experts(prefix + "mlp.", mlp_in, *moe)
                     : b_.gated_mlp(prefix + "mlp.", mlp_in, std::get<checkpoint::GatedMlp>(weights.mlp));
  return b_.add(prefix + "out", x, b_.all_reduce(prefix + "mlp_sum", made));
}

ValueId LayerBuilder::head_norm_rope(const std::string& name, ValueId x, const checkpoint::Vector& norm,
                                     std::int64_t head_count, std::int64_t head_stride) {
  const std::int64_t head_dim = config_.attention.head_dim;
  const bool is_own = config_.attention.qk_norm == checkpoint::QkNorm::per_head;
  const auto weight = is_own ? b_.vector(name + ".weight", norm) : backend::OptionalVectorId();
  if (config_.attention.qk_norm == checkpoint::QkNorm::all_heads)
    x = norm_all_heads(name + "_normed", x, norm);
  const auto out = b_.value(name, head_count * head_dim);
  b_.push(backend::HeadNormRope{x, weight, config_.norm_adds_one, config_.norm_epsilon, rope_, head_count,
                                head_dim, head_stride, out});
  return out;
}

// Of several ranks each has some heads, and the norm is of all of them.
ValueId LayerBuilder::norm_all_heads(const std::string& name, ValueId x, const checkpoint::Vector& norm) {
  const backend::PartOf& part = b_.program().part;
  if (part.count == 1) return b_.rms_norm(name, x, norm, config_);
  const ValueId all = b_.rms_norm(name + "_all", b_.all_gather(name + "_in", x), norm, config_);
  const auto own = b_.like(name, x);
  b_.push(backend::TakeColumns{all, part.rank * b_.columns(x), own});
  return own;
}

ValueId LayerBuilder::attention(const std::string& prefix, ValueId x,
                                const checkpoint::AttentionWeights& weights, std::int64_t window) {
  const checkpoint::AttentionConfig& sizes = config_.attention;
  auto& caches = b_.program().kv_caches;
  const backend::KvCacheId cache{static_cast<std::int32_t>(caches.size())};
  caches.push_back({.name = prefix + "cache",
                    .kv_head_count = sizes.kv_head_count,
                    .head_dim = sizes.head_dim,
                    .format = b_.kv_format(),
                    .window = window});

  const ValueId query = b_.linear(prefix + "query", x, weights.query, weights.query_bias);
  const ValueId key = b_.linear(prefix + "key", x, weights.key, weights.key_bias);
  const ValueId value = b_.linear(prefix + "value", x, weights.value, weights.value_bias);
  const ValueId turned_query = head_norm_rope(prefix + "turned_query", query, weights.query_norm,
                                              sizes.head_count, sizes.head_dim * (sizes.output_gate ? 2 : 1));
  const ValueId turned_key =
      head_norm_rope(prefix + "turned_key", key, weights.key_norm, sizes.kv_head_count, sizes.head_dim);
  b_.push(backend::WriteKv{turned_key, value, cache});
  const auto attended = b_.like(prefix + "attended", turned_query);
  b_.push(backend::Attention{turned_query, cache, sizes.head_count,
                             1 / std::sqrt(static_cast<double>(sizes.head_dim)), attended,
                             b_.vector_if_any(prefix + "sinks", weights.sinks), window});
  if (!sizes.output_gate) return b_.linear(prefix + "output", attended, weights.output, weights.output_bias);
  const auto gated = b_.like(prefix + "gated", attended);
  b_.push(backend::HeadGate{attended, query, sizes.head_dim, gated});
  return b_.linear(prefix + "output", gated, weights.output, weights.output_bias);
}

// Absorbed for every row: queries go to the latent's space, and what attention gives comes back from it
// (docs/decisions/0029-mla.md).
ValueId LayerBuilder::latent(const std::string& prefix, ValueId x, const checkpoint::LatentWeights& weights) {
  const checkpoint::LatentConfig& sizes = *config_.latent;
  const std::int64_t heads = config_.attention.head_count;
  auto& caches = b_.program().kv_caches;
  const backend::KvCacheId cache{static_cast<std::int32_t>(caches.size())};
  caches.push_back(
      {prefix + "cache", 1, sizes.latent_dim + sizes.turned_dim, b_.kv_format(), sizes.latent_dim});

  ValueId query_in = x;
  if (weights.query_down)
    query_in = b_.rms_norm(prefix + "query_norm", b_.linear(prefix + "query_down", x, *weights.query_down),
                           weights.query_norm, sizes.norm_epsilon);
  const ValueId plain_query = b_.linear(prefix + "plain_query", query_in, weights.plain_query);
  const ValueId rope_query = b_.linear(prefix + "rope_query", query_in, weights.turned_query);
  const ValueId latent = b_.linear(prefix + "latent", x, weights.latent);
  const ValueId rope_key = b_.linear(prefix + "rope_key", x, weights.turned_key);
  const ValueId value = b_.rms_norm(prefix + "latent_norm", latent, weights.latent_norm, sizes.norm_epsilon);
  const auto turn = [&](const std::string& name, ValueId in, std::int64_t head_count) {
    const auto out = b_.like(name, in);
    b_.push(
        backend::HeadNormRope{in, {}, false, 0, rope_, head_count, sizes.turned_dim, sizes.turned_dim, out});
    return ValueId(out);
  };
  const ValueId turned_query = turn(prefix + "turned_query", rope_query, heads);
  const ValueId turned_key = turn(prefix + "turned_key", rope_key, 1);
  b_.push(backend::WriteKv{turned_key, value, cache});

  const ValueId absorbed = b_.head_linear(prefix + "absorbed", plain_query, weights.key_up, heads, true);
  const auto query = b_.value(prefix + "query", heads * (sizes.latent_dim + sizes.turned_dim));
  b_.push(backend::Concat{absorbed, turned_query, query, heads});
  const auto attended = b_.value(prefix + "attended", heads * sizes.latent_dim);
  const double scale =
      latent_scale_factor(config_.rope) / std::sqrt(static_cast<double>(sizes.plain_dim + sizes.turned_dim));
  b_.push(backend::Attention{.query = query,
                             .cache = cache,
                             .head_count = heads,
                             .scale = scale,
                             .out = attended,
                             .growth = sizes.growth,
                             .growth_positions = sizes.growth_positions});
  const ValueId expanded = b_.head_linear(prefix + "expanded", attended, weights.value_up, heads, false);
  return b_.linear(prefix + "output", expanded, weights.output);
}

ValueId LayerBuilder::delta(const std::string& prefix, ValueId x, const checkpoint::DeltaWeights& weights) {
  const checkpoint::DeltaConfig& sizes = *config_.delta;
  auto& states = b_.program().delta_states;
  const backend::DeltaStateId state{static_cast<std::int32_t>(states.size())};
  states.push_back({prefix + "state", sizes.key_head_count, sizes.value_head_count, sizes.key_head_dim,
                    sizes.value_head_dim, sizes.conv_taps});

  const ValueId qkv = b_.linear(prefix + "qkv", x, weights.qkv);
  const ValueId gate = b_.linear(prefix + "gate", x, weights.gate);
  const ValueId beta = b_.linear(prefix + "beta", x, weights.beta);
  const ValueId decay = b_.linear(prefix + "decay", x, weights.decay);
  const auto conv = b_.like(prefix + "conv", qkv);
  b_.push(backend::CausalConv{qkv, b_.vector(prefix + "taps", weights.conv), state, conv});
  const auto answer = b_.value(prefix + "answer", sizes.value_dim());
  b_.push(backend::DeltaRule{conv, beta, decay, b_.vector(prefix + "a_log", weights.a_log),
                             b_.vector(prefix + "dt_bias", weights.dt_bias), state, answer});
  const auto gated = b_.like(prefix + "gated", answer);
  const auto kind =
      sizes.output_gate == checkpoint::DeltaGate::silu ? backend::GateKind::silu : backend::GateKind::sigmoid;
  b_.push(backend::GatedHeadNorm{answer, gate, b_.vector(prefix + "norm", weights.norm), config_.norm_epsilon,
                                 kind, gated});
  return b_.linear(prefix + "output", gated, weights.output);
}

ValueId LayerBuilder::experts(const std::string& prefix, ValueId x, const checkpoint::MoeWeights& weights) {
  const checkpoint::MoeConfig& sizes = *config_.moe;
  auto& sets = b_.program().expert_sets;
  const backend::ExpertSetId set{static_cast<std::int32_t>(sets.size())};
  sets.push_back({prefix + "experts", {}, first_expert_, sizes.expert_count});
  for (const checkpoint::GatedMlp& expert : weights.experts)
    sets.back().experts.push_back({b_.matrix(expert.gate), b_.matrix(expert.up), b_.matrix(expert.down)});
  sets.back().gate_bias = b_.vector_if_any(prefix + "experts.gate_bias", weights.gate_bias);
  sets.back().up_bias = b_.vector_if_any(prefix + "experts.up_bias", weights.up_bias);
  sets.back().down_bias = b_.vector_if_any(prefix + "experts.down_bias", weights.down_bias);

  const ValueId router = b_.linear(prefix + "router", x, weights.router, weights.router_bias);
  const auto chosen =
      b_.value(prefix + "chosen", sizes.experts_per_token, backend::RowSet::tokens, backend::ValueType::i32);
  const auto shares = b_.value(prefix + "shares", sizes.experts_per_token);
  b_.push(backend::TopKExperts{
      .logits = router,
      .count = sizes.experts_per_token,
      .normalize = sizes.normalize_weights,
      .experts = chosen,
      .weights = shares,
      .score = sizes.sigmoid_scores ? backend::RouterScore::sigmoid : backend::RouterScore::softmax,
      .choice_bias = b_.vector_if_any(prefix + "choice_bias", weights.choice_bias),
      .group_count = sizes.group_count,
      .groups_kept = sizes.groups_kept,
      .scale = sizes.weight_scale});
  const auto routed = b_.like(prefix + "routed", x);
  const auto glu = sizes.glu_limit > 0 ? backend::GluKind::clamped : backend::GluKind::plain;
  b_.push(backend::RunExperts{x, chosen, shares, set, routed, glu, sizes.glu_alpha, sizes.glu_limit});
  if (!weights.shared) return routed;

  const ValueId shared = b_.gated_mlp(prefix + "shared.", x, *weights.shared);
  if (!weights.shared_gate) return b_.add(prefix + "combined", routed, shared);
  const ValueId gate = b_.linear(prefix + "shared_gate", x, *weights.shared_gate);
  const auto combined = b_.like(prefix + "combined", routed);
  b_.push(backend::AddGated{routed, shared, gate, combined});
  return combined;
}

}  // namespace fourfold::model
