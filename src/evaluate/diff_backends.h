// A model on several backends, layer by layer on the same given inputs, so that a difference belongs to the
// layer it is shown for. The first backend runs the whole model; what goes into a layer there, rounded to
// bf16, is what every backend gets: a program of that one layer whose embedding is a table of those rows.
//
// With f32 activations every number must agree to kExactBound. With others the inputs of matrices are rounded
// and a row may differ by kLayerBound of itself, unless its router was nearly undecided (kClearMargin): then
// another expert is as right, and the row is only counted. A row that differs by more may be one that
// rounding moves that far, where a norm follows numbers that nearly cancel: its bound is then derived by
// experiment, as in compare.h, kLargestFactor times what errors of the format's size did to that row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "model/builder.h"

namespace fourfold::evaluate {

inline constexpr double kLayerBound = 2e-2;   // root mean square of a row's difference over that of the row
inline constexpr double kClearMargin = 0.05;  // between the logits of the last expert chosen and the next

struct LayerDifference {
  std::string what;  // "embedding", "layer 3", "final norm", "logits"
  std::string backend;
  double largest = 0;                // of single numbers
  double relative = 0;               // of the worst row, which is the one furthest beyond its bound
  double bound = 0;                  // of that row
  bool bounds_largest = false;       // f32: the bound is for the largest difference
  std::int64_t row_count = 0;        // held against the bound
  std::int64_t undecided_count = 0;  // whose router was too close to call
  bool fine() const { return (bounds_largest ? largest : relative) <= bound; }  // NaN is not fine
};

struct DiffRequest {
  const checkpoint::ModelConfig& config;
  const checkpoint::ModelWeights& weights;
  model::Activations activations = model::Activations::w4a16;
  std::vector<std::int32_t> tokens;
  std::int64_t generated_count = 0;   // the last so many tokens are run one by one, as generated rows
  std::vector<std::string> backends;  // the first is what the others are held against
  bool by_op = false;                 // also every value inside a layer that both sides keep
};

// Prepares a program on a backend that keeps the values of layers; and on one that keeps those of ops, for
// the margins of routers.
struct DiffBackends {
  std::function<std::unique_ptr<backend::Prepared>(const std::string& backend, backend::Program program,
                                                   const backend::Capacity& capacity)>
      prepare;
  std::function<std::unique_ptr<backend::Prepared>(backend::Program program,
                                                   const backend::Capacity& capacity)>
      prepare_router;
};

// Shows each difference as it is found.
std::vector<LayerDifference> diff_backends(const DiffRequest& request, const DiffBackends& backends,
                                           const std::function<void(const LayerDifference&)>& show);

}  // namespace fourfold::evaluate
