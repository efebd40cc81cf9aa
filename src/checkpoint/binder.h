// Names and shapes of tensors that several families have, for their binders (family.h).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/bind_matrix.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/tensor_pool.h"
#include "checkpoint/weights.h"

namespace fourfold::checkpoint {

// What the matrices of attention and of a gated MLP are called.
struct AttentionNames {
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* output = "o_proj";
};
struct MlpNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

// Tells matrices that a stacked tensor gave what each would be called alone, under this prefix and the
// expert's number: quantize writes them so.
void name_experts(std::vector<GatedMlp>& experts, const std::string& prefix, const MlpNames& names = {});

// Prefixes end in a dot.
class Binder {
 public:
  Binder(TensorPool& pool, const ModelConfig& config) : pool_(pool), config_(config) {}

  TensorPool& pool() { return pool_; }
  const ModelConfig& config() const { return config_; }

  // `module` is the name before ".weight".
  Matrix matrix(const std::string& module, std::int64_t rows, std::int64_t columns) {
    return bind_matrix(pool_, module, {rows, columns});
  }
  Vector vector(const std::string& name, std::int64_t size) { return bind_vector(pool_, name, Shape{size}); }

  // q_proj, k_proj, v_proj, o_proj, with the biases and norms that the config says.
  AttentionWeights attention(const std::string& prefix, const AttentionNames& names = {});
  // q_a_proj and q_b_proj (or q_proj), kv_a_proj_with_mqa, kv_b_proj, o_proj and the norms between.
  LatentWeights latent_attention(const std::string& prefix);
  GatedMlp gated_mlp(const std::string& prefix, std::int64_t intermediate, const MlpNames& names = {});
  // One after another, by number, or stacked (gate_up_proj and down_proj of all).
  std::vector<GatedMlp> routed_experts(const std::string& prefix, const MlpNames& names = {});
  // input_layernorm and post_attention_layernorm.
  void layer_norms(const std::string& prefix, LayerWeights& layer);
  // gate_proj, up_proj, down_proj of a dense layer; or gate (with a bias for choosing where the config says
  // so), experts and shared_experts.
  void mlp(const std::string& prefix, MlpKind kind, LayerWeights& layer);
  // lm_head, or the embedding again.
  void head(ModelWeights& weights, const std::string& prefix = "");

  // A whole model as most families name it, under `wrapper` ("language_model." or nothing): embedding,
  // model.layers, norm and head; and as DeepSeek-V3 and GLM do, with the layer behind the last for drafts, if
  // it is there.
  using BindLayer = LayerWeights (*)(Binder& binder, const std::string& prefix, MlpKind kind);
  ModelWeights layers(const std::string& wrapper, BindLayer bind_layer);
  ModelWeights layers_and_nextn(const std::string& wrapper, BindLayer bind_layer);

 private:
  std::vector<GatedMlp> stacked_experts(const std::string& prefix, const MlpNames& names);
  MtpWeights nextn(const std::string& prefix, BindLayer bind_layer);

  TensorPool& pool_;
  const ModelConfig& config_;
};

}  // namespace fourfold::checkpoint
