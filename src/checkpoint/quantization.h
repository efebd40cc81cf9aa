// What a checkpoint says about its own quantisation: hf_quant_config.json (ModelOpt) and quantization_config
// in config.json (ModelOpt, compressed-tensors, FP8). It decides which activations the model was made for and
// is refused when unknown; which format a matrix has is decided by its tensors alone (bind.h), because these
// lists are incomplete in published checkpoints.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::checkpoint {

enum class QuantMethod { none, modelopt, compressed_tensors, fp8, mxfp4 };
std::string_view quant_method_name(QuantMethod method);

// What the weights of a module are multiplied with, as the makers meant it.
enum class QuantAlgorithm { fp8, mxfp8, nvfp4, w4a16_nvfp4, mxfp4, mixed_precision };
std::string_view quant_algorithm_name(QuantAlgorithm algorithm);

// What the file says keys and values were calibrated for; --kv decides what they are kept in.
enum class KvCacheScheme { none, fp8, nvfp4, other };
std::string_view kv_cache_name(KvCacheScheme scheme);

struct Quantization {
  QuantMethod method = QuantMethod::none;
  std::vector<QuantAlgorithm> algorithms;  // empty: not quantised; several: mixed precision. mixed_precision
                                           // stands for a list that the file does not give
  std::map<std::string, QuantAlgorithm> modules;  // MIXED_PRECISION: module name -> algorithm
  std::vector<std::string> excluded;              // patterns as written, for people to read
  KvCacheScheme kv_cache = KvCacheScheme::none;   // declared; the scales may be absent all the same
  std::string producer;                           // "modelopt 0.44.0", when stated

  bool quantized() const { return method != QuantMethod::none; }
  // NVFP4 weights were calibrated together with NVFP4 activations.
  bool made_for_fp4_activations() const;
};

// Texts of config.json and hf_quant_config.json; the second may be empty. Throws unsupported_model for an
// unknown method, algorithm, format or group size, bad_checkpoint when the two files contradict each other.
Quantization parse_quantization(std::string_view config_text, std::string_view hf_quant_text,
                                std::string_view what);
Quantization read_quantization(const std::filesystem::path& folder);

}  // namespace fourfold::checkpoint
