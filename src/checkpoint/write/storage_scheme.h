// How a checkpoint is to be stored: which kind of matrix becomes NVFP4, FP8 or stays, and under which names.
// The schemes of published releases, for those who write checkpoints (quantising, random models). Reading
// never asks this file: there the tensors present decide (bind.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "checkpoint/matrix.h"
#include "checkpoint/write/write_safetensors.h"

namespace fourfold::checkpoint {

enum class StoredAs { plain, fp8, nvfp4, mxfp4 };
// mxfp4_blocks: as gpt-oss is released, MXFP4 experts stacked in one tensor of blocks and one of scales.
enum class NameConvention { modelopt, compressed_tensors, mxfp4_blocks };

struct StorageScheme {
  NameConvention names = NameConvention::modelopt;
  StoredAs routed = StoredAs::plain;
  StoredAs shared = StoredAs::plain;  // dense MLPs too
  StoredAs attention = StoredAs::plain;
  StoredAs delta = StoredAs::plain;
  StoredAs head = StoredAs::plain;
  bool input_scales = false;  // made for FP4 activations

  // The layer that drafts is plain in every known release.
  StoredAs of(const Matrix& matrix) const;
  bool quantizes() const {
    for (const StoredAs stored : {routed, shared, attention, delta, head})
      if (stored != StoredAs::plain) return true;
    return false;
  }
};

// The tensors of one stored matrix, in this order: the weights (codes), then the scales of blocks (NVFP4),
// then the matrix's own scale, then the scale of its inputs where the scheme has one. MXFP4 has the first
// two.
std::vector<TensorSpec> tensors_of(const StorageScheme& scheme, StoredAs stored, const std::string& module,
                                   Shape shape);

// A matrix that was written and how; `module` is its name before ".weight", or that of stacked experts.
struct StoredModule {
  std::string module;
  StoredAs stored = StoredAs::plain;
  bool is_expert = false;  // a routed one
};

// The object quantization_config of config.json. Experts of a layer are one entry.
void describe_quantization(JsonWriter& json, const StorageScheme& scheme,
                           const std::vector<StoredModule>& modules);
// hf_quant_config.json, which ModelOpt writes as well; empty for compressed-tensors.
std::string modelopt_sidecar(const StorageScheme& scheme, const std::vector<StoredModule>& modules);

}  // namespace fourfold::checkpoint
