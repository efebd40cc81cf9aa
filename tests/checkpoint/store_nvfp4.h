// A matrix of a tiny model in NVFP4.
#pragma once

#include "base/nvfp4.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {

// Stores a matrix of the model as NVFP4 under either convention.
inline void store_nvfp4(TinyModel& model, const std::string& module, std::int64_t rows, std::int64_t columns,
                        bool compressed) {
  const Nvfp4Matrix matrix =
      quantize_nvfp4_weights(values_of(model.tensor(module + ".weight")), rows, columns);
  model.remove(module + ".weight");
  const std::string codes(reinterpret_cast<const char*>(matrix.codes.data()), matrix.codes.size());
  const float modelopt = matrix.global_scale;
  const auto number = [](float value) { return bytes_of(std::vector<float>{value}); };
  // The front keeps the four-byte numbers aligned.
  auto& tensors = model.tensors;
  if (compressed) {
    tensors.insert(tensors.begin(), {module + ".weight_global_scale", "F32", {1}, number(1.0f / modelopt)});
    tensors.insert(tensors.begin(), {module + ".input_global_scale", "F32", {1}, number(336.0f)});
  } else {
    tensors.insert(tensors.begin(), {module + ".weight_scale_2", "F32", {}, number(modelopt)});
  }
  tensors.push_back({module + (compressed ? ".weight_packed" : ".weight"), "U8", {rows, columns / 2}, codes});
  tensors.push_back({module + ".weight_scale", "F8_E4M3", {rows, columns / 16}, bytes_of(matrix.scales)});
}

}  // namespace fourfold::checkpoint
