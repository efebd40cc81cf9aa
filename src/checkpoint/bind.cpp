#include "checkpoint/bind.h"

#include "base/check.h"
#include "checkpoint/family.h"
#include "checkpoint/tensor_pool.h"

namespace fourfold::checkpoint {
namespace {

// A matrix is what its place says. visit(role, matrices...) has those together that for_each_group() does.
void visit_mlp(auto& mlp, TensorRole role, const auto& visit) {
  visit(role, mlp.gate, mlp.up);
  visit(role, mlp.down);
}

void visit_mixer(auto& mixer, const auto& visit) {
  if (auto* attention = std::get_if<AttentionWeights>(&mixer)) {
    visit(TensorRole::attention, attention->query, attention->key, attention->value);
    visit(TensorRole::attention, attention->output);
  } else if (auto* latent = std::get_if<LatentWeights>(&mixer)) {
    if (latent->query_down) visit(TensorRole::attention, *latent->query_down);
    visit(TensorRole::attention, latent->plain_query, latent->turned_query);
    visit(TensorRole::attention, latent->latent, latent->turned_key);
    // Backends hold them in bf16 (backend::HeadLinear): fewer bits would be lost for nothing.
    visit(TensorRole::other, latent->key_up, latent->value_up);
    visit(TensorRole::attention, latent->output);
  } else {
    auto& delta = std::get<DeltaWeights>(mixer);
    visit(TensorRole::delta, delta.qkv, delta.gate);
    visit(TensorRole::other, delta.beta, delta.decay);
    visit(TensorRole::delta, delta.output);
  }
}

void visit_layer(auto& layer, const auto& visit) {
  visit_mixer(layer.mixer, visit);
  if (auto* dense = std::get_if<GatedMlp>(&layer.mlp)) return visit_mlp(*dense, TensorRole::dense_mlp, visit);
  auto& moe = std::get<MoeWeights>(layer.mlp);
  visit(TensorRole::router, moe.router);
  for (auto& expert : moe.experts) visit_mlp(expert, TensorRole::routed_expert, visit);
  if (moe.shared) visit_mlp(*moe.shared, TensorRole::shared_expert, visit);
  if (moe.shared_gate) visit(TensorRole::other, *moe.shared_gate);
}

void visit_mtp(auto& mtp, const auto& visit) {
  visit(TensorRole::other, mtp.combine);
  for (auto& layer : mtp.layers) visit_layer(layer, visit);
}

// In the order a token meets them.
void visit_model(auto& weights, const auto& visit) {
  visit(TensorRole::other, weights.embedding);
  for (auto& layer : weights.layers) visit_layer(layer, visit);
  if (!weights.head_is_embedding) visit(TensorRole::head, weights.head);
  if (weights.mtp) visit_mtp(*weights.mtp, visit);
}

}  // namespace

BoundModel bind_model(const Checkpoint& checkpoint, const ModelConfig& config) {
  check(config.family != nullptr, "the config was read for a family");
  TensorPool pool(checkpoint);
  Binder binder(pool, config);
  BoundModel model;
  model.weights = config.family->bind(binder);
  visit_model(model.weights, [](TensorRole role, auto&... matrices) { ((matrices.role = role), ...); });
  if (model.weights.mtp)
    visit_mtp(*model.weights.mtp, [](TensorRole, auto&... matrices) { ((matrices.of_mtp = true), ...); });
  model.skipped = pool.skip_unused();
  model.folded = pool.folded();
  pool.finish();
  return model;
}

void for_each_matrix(const ModelWeights& weights, const std::function<void(const Matrix&)>& visit) {
  visit_model(weights, [&](TensorRole, const auto&... matrices) { (visit(matrices), ...); });
}

void for_each_group(const ModelWeights& weights,
                    const std::function<void(std::span<const Matrix* const>)>& visit) {
  visit_model(weights, [&](TensorRole, const auto&... matrices) {
    const Matrix* const group[] = {&matrices...};
    visit(group);
  });
}

}  // namespace fourfold::checkpoint
