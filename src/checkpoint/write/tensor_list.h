// Tensors of a model to be made, one after another (FamilyMaker).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/binder.h"
#include "checkpoint/write/model_shape.h"

namespace fourfold::checkpoint {

class TensorList {
 public:
  using Fill = PlannedTensor::Fill;

  // norm_offset is what a norm adds to its stored weight: 1 where it multiplies with 1 + w.
  TensorList(const ModelShape& shape, double norm_offset) : shape_(shape), norm_offset_(norm_offset) {}

  void add(std::string name, Shape shape, Fill fill, double a, double b) {
    tensors_.push_back({std::move(name), shape, fill, a, b});
  }
  void linear(const std::string& module, std::int64_t rows, std::int64_t columns, double gain = 1) {
    add(module + ".weight", {rows, columns}, Fill::linear, gain, 0);
  }
  void norm(const std::string& name, std::int64_t size, double mean = 1) {
    add(name, {size}, Fill::normal, 0.2, mean - norm_offset_);
  }
  void bias(const std::string& name, std::int64_t size) { add(name, {size}, Fill::normal, 0.5, 0); }
  void attention(const std::string& prefix, const AttentionNames& names = {}) {
    const ModelShape& s = shape_;
    linear(prefix + names.query, s.heads * s.head_dim, s.hidden);
    linear(prefix + names.key, s.kv_heads * s.head_dim, s.hidden);
    linear(prefix + names.value, s.kv_heads * s.head_dim, s.hidden);
    linear(prefix + names.output, s.hidden, s.heads * s.head_dim);
    if (!s.attention_bias) return;
    bias(prefix + names.query + ".bias", s.heads * s.head_dim);
    bias(prefix + names.key + ".bias", s.kv_heads * s.head_dim);
    bias(prefix + names.value + ".bias", s.kv_heads * s.head_dim);
  }
  void gated_mlp(const std::string& prefix, std::int64_t intermediate, const MlpNames& names = {}) {
    linear(prefix + names.gate, intermediate, shape_.hidden);
    linear(prefix + names.up, intermediate, shape_.hidden);
    linear(prefix + names.down, shape_.hidden, intermediate);
  }
  std::vector<PlannedTensor> take() { return std::move(tensors_); }

 private:
  const ModelShape& shape_;
  double norm_offset_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace fourfold::checkpoint
