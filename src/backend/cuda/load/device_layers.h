// The layers of a program with their weights and states on the machine, ready to be launched.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/batch.h"
#include "backend/cuda/load/layers.h"
#include "backend/cuda/load/weights.h"
#include "kernels/delta/delta_params.h"
#include "kernels/mla/latent_page.h"
#include "kernels/moe_layer/moe_layer.h"

namespace fourfold::backend::cuda {

struct DeviceNorm {
  const float* weight = nullptr;
  float epsilon = 0;
  int columns = 0;
};

struct DeviceDelta {
  DeviceNorm norm;
  DenseGroup in;  // qkv, gate, beta, decay
  const DenseGroup& behind_norm() const { return in; }
  delta::LayerWeights weights{};
  float* state = nullptr;  // from slot 0 on
  delta::Layout layout{};
  int out_columns = 0;  // of its result's rows: value_dim, padded as the matrix behind it is
  DenseGroup out;
};

struct DeviceAttention {
  DeviceNorm norm;
  DenseGroup in;  // query (and gate), key, value
  const DenseGroup& behind_norm() const { return in; }
  const float* query_weight = nullptr;  // null: no norm
  const float* key_weight = nullptr;
  float epsilon = 0;
  bool norms_rows = false;  // all heads of a row together: the weights are of whole rows
  int query_columns = 0;    // then: of a whole row, of all ranks
  int key_columns = 0;
  const float* query_bias = nullptr;  // null: none
  const float* key_bias = nullptr;
  const float* value_bias = nullptr;
  const float* rotary = nullptr;  // [positions, pairs, 2]
  int rotary_pairs = 0;
  KvFormat kv = KvFormat::bf16;
  unsigned char* keys = nullptr;
  unsigned char* values = nullptr;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool is_gated = false;
  float scale = 0;
  // With a window or sinks the kernels' rows are others.
  bool is_windowed = false;
  int window = 0;                 // 0: all positions
  bool has_window_pages = false;  // its pages are those of WindowPages
  const float* sinks = nullptr;   // [heads]; null: none
  DenseGroup out;
};

struct DeviceLatent {
  DeviceNorm norm;
  DenseGroup in;     // query_down, or the query's two; the latent, the turned key
  DenseGroup query;  // behind query_down: the plain and the turned query; none without it
  const DenseGroup& behind_norm() const { return in; }
  bool has_query_latent() const { return !query.matrices.empty(); }
  DeviceNorm query_norm, latent_norm;
  int plain_column = 0, turned_column = 0;  // of the queries, in the projection they are in
  int latent_column = 0, key_column = 0;
  const float* rotary = nullptr;
  int rotary_pairs = 0;
  unsigned char* pages = nullptr;
  int page_latent = 0;  // columns of the latent as pages have them
  int heads = 0;
  int plain_columns = 0;                    // of a head's query before it is absorbed
  int value_columns = 0;                    // of a head's result
  const std::uint16_t* key_up = nullptr;    // [heads][plain][latent]
  const std::uint16_t* value_up = nullptr;  // [heads][value][latent]
  int up_stride = 0;                        // of their rows, padded as tables are
  float scale = 0;
  int growth_positions = 0;  // 0: the scale does not grow
  const float* grown_scale = nullptr;
  DenseGroup out;

  int latent_columns() const { return latent_norm.columns; }
  int query_columns() const { return heads * (page_latent + mla::kPanelColumns); }
  int mixed_columns() const { return out.matrices.front().columns(); }  // padded as the matrix is
};

struct DeviceMoe {
  DeviceNorm norm;
  DenseGroup in;  // router, the shared expert's gate, its gate and up
  const DenseGroup& behind_norm() const { return in; }
  bool has_shared = false;
  bool has_shared_gate = false;
  int shared_columns = 0;
  DenseGroup shared_down;
  ExpertRecords experts;
  int top_k = 0;
  moe_route::RouteRule rule;
  bool clamped = false;  // the experts' SwiGLU, with these numbers
  float glu_alpha = 0;
  float glu_limit = 0;
  moe_layer::LayerWeights layer_weights() const;
  moe_layer::Shape shape() const { return {experts.hidden, experts.intermediate, experts.experts, top_k}; }
};

struct DeviceMlp {
  DeviceNorm norm;
  DenseGroup gate_up;
  const DenseGroup& behind_norm() const { return gate_up; }
  int inner = 0;
  DenseGroup down;
};

struct DeviceLayer {
  std::variant<DeviceDelta, DeviceAttention, DeviceLatent> mixer;
  std::variant<DeviceMoe, DeviceMlp> mlp;
};

struct DeviceHead {
  DeviceNorm norm;
  DenseGroup matrix;
  int vocab = 0;
  int columns = 0;        // of the vocabulary, here: all of them with one rank
  int logits_stride = 0;  // of a row of all logits
};

// The MTP layer with what it takes its input from.
struct DeviceDraft {
  const std::uint16_t* embedding = nullptr;
  DeviceNorm embedding_norm, hidden_norm;
  DenseGroup combine;
  DeviceLayer layer;
  DeviceHead head;
};

struct DeviceModel {
  PartOf part;
  int hidden = 0;
  std::int64_t position_count = 0;  // those a sequence can reach: of the model, or of all pages
  const std::uint16_t* embedding = nullptr;
  std::vector<DeviceLayer> layers;
  DeviceHead head;
  bool keeps_hidden = false;

  std::optional<DeviceDraft> draft;
};

// Loads every weight; states and caches are allocated for the capacity, and zero: a padded page is read
// whole, and what is not a number would spoil what its weight 0 multiplies.
// watch: told after each part which kind of weights it was ("attention"); for plans.
using LoadWatch = std::function<void(std::string_view kind)>;
DeviceModel load_model(const Layers& layers, const Program& program, const Capacity& capacity,
                       WeightLoader& loader, kernels::Arena& arena, kernels::Memory& memory,
                       const LoadWatch& watch = {});

}  // namespace fourfold::backend::cuda
