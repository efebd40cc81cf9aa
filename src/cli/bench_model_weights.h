// Weights of a model's true shapes without a checkpoint: every matrix looks at rows of a few random tables,
// so that only what a backend packs takes memory. Values keep their size from layer to layer, and rows of
// different tokens stay different, so that a router spreads them over its experts as a trained one does: the
// embedding has a table of its own and no matrix of a layer begins where another one does.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "checkpoint/write/model_shape.h"

namespace fourfold::cli {

// A shape that make-model knows, or 397b-tp4: what one of four GPUs has of a 397b.
checkpoint::ModelShape bench_shape(const std::string& name);

// The --dense of benches: "keep" is bf16, as releases have them. Throws invalid_request for others.
WeightFormat parse_random_dense(const std::string& text);

checkpoint::ModelConfig config_of(const checkpoint::ModelShape& shape, std::int64_t layer_count);

class RandomWeights {
 public:
  // dense: nvfp4, fp8 or bf16; nvfp4 as --dense makes it at load, without input scales. Routed experts are
  // NVFP4 with them, or MXFP4 where the family is released so. The MTP layer is bf16, its experts too, as
  // releases have it.
  RandomWeights(const checkpoint::ModelConfig& config, WeightFormat dense, bool with_mtp = false);
  const checkpoint::ModelWeights& weights() const { return weights_; }
  WeightFormat expert_format() const;  // of routed experts, but for an MTP layer's

 private:
  using Matrix = checkpoint::Matrix;
  checkpoint::Vector norm(std::int64_t count) const;
  checkpoint::Vector bias(std::int64_t count);
  // A row of the tables; one of few, so that a backend packs equal experts once.
  std::int64_t next_start();
  Matrix embedding();
  Matrix nvfp4(std::int64_t rows, std::int64_t columns, std::int64_t start);
  Matrix mxfp4(std::int64_t rows, std::int64_t columns, std::int64_t start);
  Matrix bf16(std::int64_t rows, std::int64_t columns, std::int64_t start);
  Matrix fp8(std::int64_t rows, std::int64_t columns, std::int64_t start);
  Matrix dense(std::int64_t rows, std::int64_t columns, std::int64_t start);
  Matrix bf16(std::int64_t rows, std::int64_t columns) { return bf16(rows, columns, next_start()); }
  Matrix dense(std::int64_t rows, std::int64_t columns) { return dense(rows, columns, next_start()); }
  checkpoint::GatedMlp mlp(bool is_expert, std::int64_t inner);
  checkpoint::LayerWeights layer(const checkpoint::LayerKind& kind);
  checkpoint::MtpWeights mtp();
  checkpoint::AttentionWeights attention();
  checkpoint::LatentWeights latent();
  checkpoint::DeltaWeights delta();

  const checkpoint::ModelConfig& config_;
  WeightFormat dense_;
  bool experts_are_bf16_ = false;
  std::uint64_t made_ = 0;  // matrices and biases so far
  std::vector<Bf16> embedding_table_;
  std::map<std::int64_t, Nvfp4Matrix> nvfp4_tables_;       // by columns
  std::map<std::int64_t, Mxfp4Matrix> mxfp4_tables_;       // by columns
  std::map<std::int64_t, std::vector<Bf16>> bf16_tables_;  // by columns
  std::map<std::int64_t, std::vector<E4m3>> fp8_tables_;   // by columns
  checkpoint::ModelWeights weights_;
};

}  // namespace fourfold::cli
