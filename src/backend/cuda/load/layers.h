// A program read back as layers: which ops stand together in one kernel is decided here, once, when a program
// is prepared. The order of ops a model emits is the grammar; a program of another form is refused with the
// first op that does not fit.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "backend/program.h"

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

struct AttentionMixer {
  Norm norm;
  MatrixId query, key, value, output;
  Norm query_norm, key_norm;
  RopeId rope;
  KvCacheId cache;
  std::int64_t head_count = 0;
  std::int64_t head_dim = 0;
  bool is_gated = false;  // a head's query and gate alternate in the query's rows
  double scale = 0;
};

struct GatedMlp {
  MatrixId gate, up, down;
};

struct MoeMlp {
  Norm norm;
  MatrixId router;
  std::int64_t experts_per_token = 0;
  bool normalizes = true;
  ExpertSetId set;
  std::optional<GatedMlp> shared;
  std::optional<MatrixId> shared_gate;
};

struct DenseMlp {
  Norm norm;
  GatedMlp mlp;
};

struct Layer {
  std::variant<DeltaMixer, AttentionMixer> mixer;
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

// Throws unsupported_op, naming the op, when the program is not of this form.
Layers read_layers(const Program& program);

}  // namespace fourfold::backend::cuda
