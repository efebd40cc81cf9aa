// What a model is made of and what one decoded token costs, without touching a matrix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/program.h"
#include "checkpoint/matrix.h"
#include "checkpoint/weights.h"

namespace fourfold::model {

// Matrices that differ by their numbers alone: layers, experts.
struct MatrixGroup {
  std::string pattern;  // "model.layers.N.mlp.experts.N.up_proj.weight"
  checkpoint::MatrixFormat format = checkpoint::MatrixFormat::bf16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool input_scale = false;  // calibrated for quantised activations
  std::int64_t count = 0;
  std::uint64_t bytes = 0;  // in the file, all of them
};
// In the order a token meets the first of each.
std::vector<MatrixGroup> group_matrices(const checkpoint::ModelWeights& weights);

// Bytes one decoded token moves, by what reads them.
struct TokenBytes {
  double attention = 0;
  double delta = 0;
  double routed = 0;
  double shared = 0;  // with its gate
  double dense_mlp = 0;
  double router = 0;
  double head = 0;
  double embedding = 0;
  double other = 0;
  double state = 0;  // caches and recurrent state, read and written
  double total() const {
    return attention + delta + routed + shared + dense_mlp + router + head + embedding + other + state;
  }
};

// One sequence, one token, `context` positions behind it.
TokenBytes token_bytes(const backend::Program& program, backend::Pass pass, double context);

// Weights in the whole model, each once however often it is used, and those one token multiplies with.
struct ParameterCount {
  double total = 0;
  double active = 0;  // the embedding counts as one row
};
ParameterCount count_parameters(const backend::Program& program);

}  // namespace fourfold::model
