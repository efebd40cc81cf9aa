// Adds ops to a program under names, with the sizes that follow from their operands. What every model of the
// floor is written with.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/program.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"

namespace fourfold::model {

// What matrices take as input; --activations. Fixed at load, never by the batch.
enum class Activations {
  automatic,  // what the checkpoint was made for: FP4 where a matrix has an input scale, else bf16
  f32,        // no rounding anywhere: the arithmetic of float32 reference runs
  w4a16,      // bf16 everywhere
  w4a4,       // FP4 for every NVFP4 matrix; refused when one has no input scale
  // FP4 for the prefill rows of matrices with an input scale, bf16 for everything else: what serves best on
  // FP4 tensor cores, where prompts wait for arithmetic and generated tokens for memory. An MLP, or the
  // routed experts of a layer, take FP4 all or none (takes_fp4).
  w4a4_prefill,
  // FP8 for the prefill rows of dense matrices stored in FP8, bf16 for everything else: what is fastest on
  // Hopper, whose tensor cores take FP8 at twice the rate.
  w8a8
};

// Throws unsupported_model when w4a4 is asked of an NVFP4 matrix without an input scale.
backend::InputFormat input_format(Activations activations, const checkpoint::Matrix& matrix);

class Builder {
 public:
  using ValueId = backend::ValueId;

  Builder(backend::Program& program, Activations activations)
      : program_(program), activations_(activations), ops_(&program.main) {}

  void begin(backend::Pass pass) { ops_ = pass == backend::Pass::main ? &program_.main : &program_.draft; }
  backend::KvFormat kv_format() const {
    return activations_ == Activations::f32 ? backend::KvFormat::f32 : backend::KvFormat::bf16;
  }
  std::int64_t columns(ValueId id) const { return program_.value(id).columns; }

  // Names are prefixes such as "layers.3." plus a word.
  backend::ResultId value(std::string name, std::int64_t columns,
                          backend::RowSet rows = backend::RowSet::tokens,
                          backend::ValueType type = backend::ValueType::f32);
  // A value shaped like another.
  backend::ResultId like(std::string name, ValueId other);

  ValueId embed(std::string name, const checkpoint::Matrix& table);
  // An empty bias is none.
  ValueId linear(std::string name, ValueId in, const checkpoint::Matrix& weight,
                 const checkpoint::Vector& bias = {});
  ValueId rms_norm(std::string name, ValueId in, const checkpoint::Vector& weight,
                   const checkpoint::ModelConfig& config);
  // Plain w.
  ValueId rms_norm(std::string name, ValueId in, const checkpoint::Vector& weight, double epsilon);
  // A matrix for each head; see backend::HeadLinear. Its input is never quantised.
  ValueId head_linear(std::string name, ValueId in, const checkpoint::Matrix& weight, std::int64_t head_count,
                      bool transposed);
  ValueId add(std::string name, ValueId first, ValueId second);
  ValueId all_reduce(std::string name, ValueId in);
  ValueId all_gather(std::string name, ValueId in);
  // down(silu(gate x) * up x)
  ValueId gated_mlp(const std::string& prefix, ValueId in, const checkpoint::GatedMlp& weights);
  // The head over the rows whose logits were asked; of several ranks each has some of its rows.
  ValueId logits(const std::string& prefix, ValueId hidden, const checkpoint::Matrix& head);

  void push(backend::Op op) { ops_->push_back(std::move(op)); }
  backend::MatrixId matrix(const checkpoint::Matrix& matrix);
  backend::VectorId vector(std::string name, const checkpoint::Vector& values);
  // An empty vector is none.
  backend::OptionalVectorId vector_if_any(std::string name, const checkpoint::Vector& values);
  backend::Program& program() { return program_; }
  // Every gated_mlp() so far.
  const std::vector<backend::ExpertMatrices>& gated_mlps() const { return gated_mlps_; }

 private:
  backend::Program& program_;
  Activations activations_;
  std::vector<backend::Op>* ops_;
  std::unordered_map<const checkpoint::Matrix*, backend::MatrixId> matrix_ids_;
  std::vector<backend::ExpertMatrices> gated_mlps_;
};

}  // namespace fourfold::model
