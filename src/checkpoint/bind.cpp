#include "checkpoint/bind.h"

#include "base/check.h"
#include "checkpoint/family.h"
#include "checkpoint/tensor_pool.h"

namespace fourfold::checkpoint {
namespace {

void visit_mlp(auto& mlp, const auto& visit) {
  for (auto* matrix : {&mlp.gate, &mlp.up, &mlp.down}) visit(*matrix);
}

void visit_layer(auto& layer, const auto& visit) {
  if (auto* attention = std::get_if<AttentionWeights>(&layer.mixer)) {
    for (auto* matrix : {&attention->query, &attention->key, &attention->value, &attention->output})
      visit(*matrix);
  } else if (auto* latent = std::get_if<LatentWeights>(&layer.mixer)) {
    if (latent->query_down) visit(*latent->query_down);
    for (auto* matrix : {&latent->plain_query, &latent->turned_query, &latent->latent, &latent->turned_key,
                         &latent->key_up, &latent->value_up, &latent->output})
      visit(*matrix);
  } else {
    auto& delta = std::get<DeltaWeights>(layer.mixer);
    for (auto* matrix : {&delta.qkv, &delta.gate, &delta.beta, &delta.decay, &delta.output}) visit(*matrix);
  }
  if (auto* dense = std::get_if<GatedMlp>(&layer.mlp)) return visit_mlp(*dense, visit);
  auto& moe = std::get<MoeWeights>(layer.mlp);
  visit(moe.router);
  for (auto& expert : moe.experts) visit_mlp(expert, visit);
  if (moe.shared) visit_mlp(*moe.shared, visit);
  if (moe.shared_gate) visit(*moe.shared_gate);
}

}  // namespace

BoundModel bind_model(const Checkpoint& checkpoint, const ModelConfig& config) {
  check(config.family != nullptr, "the config was read for a family");
  TensorPool pool(checkpoint);
  Binder binder(pool, config);
  BoundModel model;
  model.weights = config.family->bind(binder);
  if (model.weights.mtp) {
    const auto mark = [](Matrix& matrix) { matrix.of_mtp = true; };
    mark(model.weights.mtp->combine);
    for (LayerWeights& layer : model.weights.mtp->layers) visit_layer(layer, mark);
  }
  model.skipped = pool.skip_unused();
  for (const TensorPool::Folded& folded : pool.folded()) {
    model.folded.push_back(folded.name);
    model.memory.push_back(folded.values);
  }
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
