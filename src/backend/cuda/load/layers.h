// A program read back as layers: which ops stand together in one kernel is decided here, once, when a program
// is prepared. The order of ops a model emits is the grammar; a program of another form is refused with the
// first op that does not fit.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "backend/program.h"
#include "kernels/moe_route/route_rule.h"

namespace fourfold::backend::cuda {

struct Norm {
  VectorId weight;
  bool adds_one = false;
  double epsilon = 0;
};

struct DeltaMixer {
  Norm norm;
  MatrixId qkv, gate, beta, decay, output;
  VectorId taps, a_log, dt_bias;
  Norm head_norm;
  GateKind gate_kind = GateKind::silu;
  DeltaStateId state;
};

// A norm over all heads of a row together. With several ranks the weight is of all of them, and this one's
// columns begin at `first`.
struct RowNorm {
  Norm norm;
  std::int64_t first = 0;
};

struct AttentionMixer {
  Norm norm;
  MatrixId query, key, value, output;
  OptionalVectorId query_bias, key_bias, value_bias, output_bias;
  // Both, of each head or of whole rows; or neither.
  std::optional<Norm> query_norm, key_norm;
  std::optional<RowNorm> query_row_norm, key_row_norm;
  RopeId rope;
  KvCacheId cache;
  std::int64_t head_count = 0;
  std::int64_t head_dim = 0;
  bool is_gated = false;  // a head's query and gate alternate in the query's rows
  double scale = 0;
  OptionalVectorId sinks;
  std::int64_t window = 0;  // 0: all positions
  bool is_windowed() const { return window > 0 || sinks.is_there(); }
};

// Latent attention, absorbed (docs/decisions/0029-mla.md). Without query_down the query's matrices read the
// same rows as the latent's.
struct LatentMixer {
  Norm norm;
  std::optional<MatrixId> query_down;
  Norm query_norm;
  MatrixId plain_query, turned_query, latent, turned_key;
  Norm latent_norm;
  MatrixId key_up, value_up, output;
  RopeId rope;
  KvCacheId cache;
  std::int64_t head_count = 0;
  Attention attend;  // its scale
};

struct GatedMlp {
  MatrixId gate, up, down;
};

struct MoeMlp {
  Norm norm;
  MatrixId router;
  OptionalVectorId router_bias;
  std::int64_t experts_per_token = 0;
  bool normalizes = true;
  RouterScore score = RouterScore::softmax;
  OptionalVectorId choice_bias;
  std::int64_t group_count = 1;  // 1: any expert may be chosen
  std::int64_t groups_kept = 1;
  double scale = 1;
  ExpertSetId set;
  bool clamped = false;  // the experts' SwiGLU, with these numbers
  double glu_alpha = 0;
  double glu_limit = 0;
  std::optional<GatedMlp> shared;
  std::optional<MatrixId> shared_gate;
};

struct DenseMlp {
  Norm norm;
  GatedMlp mlp;
};

struct Layer {
  std::variant<DeltaMixer, AttentionMixer, LatentMixer> mixer;
  std::variant<MoeMlp, DenseMlp> mlp;
  ValueId out;  // the residual stream after it
};

// Embedding, layers, final norm, head.
struct MainPass {
  MatrixId embedding;
  ValueId embedded;
  std::vector<Layer> layers;
  Norm final_norm;
  bool keeps_hidden = false;
  MatrixId head;
};

// The MTP layer: [norm(embedding of the next token); norm(hidden)] through `combine`, then as above.
struct DraftPass {
  MatrixId embedding;
  Norm embedding_norm, hidden_norm;
  MatrixId combine;
  Layer layer;
  Norm final_norm;
  MatrixId head;
};

struct Layers {
  MainPass main;
  std::optional<DraftPass> draft;
};

// The same as the kernels take it; choice_bias: on the machine, null for none.
moe_route::RouteRule rule_of(const MoeMlp& mlp, const float* choice_bias);

// Throws unsupported_op, naming the op, when the program is not of this form.
Layers read_layers(const Program& program);

}  // namespace fourfold::backend::cuda
