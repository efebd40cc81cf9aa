// The weights of a model by role, for every family and every storage layout: fused and per-expert experts,
// split and interleaved DeltaNet projections all bind to these structs, so the model never asks how a
// checkpoint spells things. Matrices stay in their files (valid as long as the Checkpoint); vectors are
// copied and widened to f32. H hidden, V vocabulary; matrices are [out, in].
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "checkpoint/matrix.h"

namespace fourfold::checkpoint {

using Vector = std::vector<float>;

struct AttentionWeights {
  Matrix query;       // [heads * head_dim (* 2 with the output gate: per head query rows, then gate rows), H]
  Matrix key;         // [kv_heads * head_dim, H]
  Matrix value;       // [kv_heads * head_dim, H]
  Matrix output;      // [H, heads * head_dim]
  Vector query_norm;  // [head_dim], or all heads' columns where they are normed together; empty: none
  Vector key_norm;    // likewise
  Vector query_bias;  // of the matrix's rows; empty: none
  Vector key_bias;
  Vector value_bias;
  Vector output_bias;
  Vector sinks;                    // [heads]; empty: none
  std::optional<float> key_scale;  // FP8 cache: stored = x / scale. Absent even where the config declares FP8
  std::optional<float> value_scale;
};

// Rows of one tensor that are made for different uses are matrices of their own: views, nothing is copied.
struct LatentWeights {
  std::optional<Matrix> query_down;  // [query_rank, H]; absent: queries are made of the input
  Vector query_norm;                 // [query_rank]; empty without query_down
  Matrix plain_query;                // [heads * plain_dim, query_rank or H]
  Matrix turned_query;  // [heads * turned_dim, query_rank or H]; rows of a pair lie half a head apart
  Matrix latent;        // [latent_dim, H]
  Vector latent_norm;   // [latent_dim]
  Matrix turned_key;    // [turned_dim, H], in the order of turned_query
  Matrix key_up;        // [heads * plain_dim, latent_dim]
  Matrix value_up;      // [heads * value_dim, latent_dim]
  Matrix output;        // [H, heads * value_dim]
};

struct DeltaWeights {
  Matrix qkv;      // [conv_dim, H]: all query rows, all key rows, all value rows
  Matrix gate;     // [value_dim, H], "z"
  Matrix beta;     // [value_heads, H], "b"
  Matrix decay;    // [value_heads, H], "a"
  Matrix output;   // [H, value_dim]
  Vector conv;     // [conv_dim, conv_taps]; the last tap multiplies the current token
  Vector a_log;    // [value_heads]
  Vector dt_bias;  // [value_heads]
  Vector norm;     // [value_head_dim], plain w
};

struct GatedMlp {
  Matrix gate;  // [intermediate, H]
  Matrix up;    // [intermediate, H]
  Matrix down;  // [H, intermediate]
};

struct MoeWeights {
  Matrix router;       // [experts, H]
  Vector router_bias;  // [experts], on the logits; empty: none
  Vector choice_bias;  // [experts], for choosing alone; empty: none
  std::vector<GatedMlp> experts;
  Vector gate_bias;  // [experts, intermediate], one expert after another; empty: none
  Vector up_bias;
  Vector down_bias;  // [experts, H]
  std::optional<GatedMlp> shared;
  std::optional<Matrix> shared_gate;  // [1, H]
};

struct LayerWeights {
  Vector input_norm;           // [H]
  Vector post_attention_norm;  // [H]
  std::variant<AttentionWeights, DeltaWeights, LatentWeights> mixer;
  std::variant<MoeWeights, GatedMlp> mlp;
};

struct MtpWeights {
  Vector embedding_norm;  // [H]
  Vector hidden_norm;     // [H]
  Matrix combine;         // "fc", [H, 2H]: columns of the embedding first
  std::vector<LayerWeights> layers;
  Vector final_norm;  // [H]
};

struct ModelWeights {
  Matrix embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  Vector final_norm;  // [H]
  Matrix head;        // [V, H]; the embedding again when tied
  bool head_is_embedding = false;
  std::optional<MtpWeights> mtp;
};

// Calls visit with every matrix, in the order a token meets them; a tied head is not visited again.
void for_each_matrix(const ModelWeights& weights, const std::function<void(const Matrix&)>& visit);
// The same in groups: kernels that multiply by gate and up (or query, key and value, or DeltaNet's qkv and z)
// at once have one NVFP4 scale for all of it.
void for_each_group(const ModelWeights& weights,
                    const std::function<void(std::span<const Matrix* const>)>& visit);

}  // namespace fourfold::checkpoint
