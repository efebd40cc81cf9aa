// The sizes of models worth making, which each family lists: tiny ones for tests, published ones for benches.
// And what follows from sizes alone: config.json and the list of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "checkpoint/family.h"
#include "checkpoint/write/storage_scheme.h"

namespace fourfold::checkpoint {

// Latent attention; the names are LatentConfig's.
struct LatentShape {
  std::int64_t query_rank = 0;
  std::int64_t latent_dim = 0;
  std::int64_t plain_dim = 0;
  std::int64_t turned_dim = 0;
  std::int64_t value_dim = 0;
  double yarn_factor = 1;
  std::int64_t yarn_positions = 0;
  double beta_fast = 32;
  double mscale_all_dim = 1;
  double growth = 0;
};

struct ModelShape {
  std::string_view name;
  std::string_view what;
  const Family* family = nullptr;    // of known_shapes(): whose it is
  std::string_view model_type = {};  // where it is not the first of its family's; DeepSeek-V3 alone reads it
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t full_interval = 4;  // every so many layers is full attention; 1: all of them
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t key_heads = 0;  // of DeltaNet
  std::int64_t value_heads = 0;
  std::int64_t delta_dim = 0;  // of a key and of a value head
  std::int64_t experts = 0;    // 0: dense
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate = 0;  // of one expert, or of the dense MLP
  std::int64_t shared = 0;
  std::int64_t positions = 0;
  double theta = 0;
  bool mtp = true;
  // What GLM and MiniMax-M2 have beside that.
  std::int64_t dense_layers = 0;  // the first so many are dense, of this width
  std::int64_t dense_intermediate = 0;
  bool attention_bias = false;
  bool qk_norm = true;
  std::int64_t groups = 1;  // of experts
  std::int64_t groups_kept = 1;
  double routed_scale = 1;
  std::int64_t window = 0;    // gpt-oss: of every other layer's attention
  LatentShape latent = {};    // DeepSeek-V3 and Mistral-Small-4, which have no kv_heads and no head_dim
  double head_norm = 1;       // mean of the factors on normed queries and keys; scores grow with its square
  double attention_gain = 1;  // of the output projection

  bool is_full(std::int64_t layer) const { return (layer + 1) % full_interval == 0; }
};

// One tensor of the model before it is quantised, and what random numbers it wants.
struct PlannedTensor {
  enum class Fill {
    linear,   // normal, deviation gain / sqrt(columns), rows of different size
    normal,   // deviation and mean
    uniform,  // from a to b
  };
  std::string name;
  Shape shape;
  Fill fill = Fill::linear;
  double a = 1;  // gain, deviation, or from
  double b = 0;  // mean, or to
};

struct TokenIds {
  std::int64_t end_of_turn = 0;
  std::int64_t end_of_text = 0;
};

// What makes a family's models, and which are worth making.
struct FamilyMaker {
  // Experts as 3-D tensors or one by one, as releases have them that are stored so.
  std::vector<PlannedTensor> (*plan)(const ModelShape& shape, const StorageScheme& scheme);
  // The members of config.json but for quantization_config.
  void (*write_config)(JsonWriter& json, const ModelShape& shape, const TokenIds& ids);
  std::span<const ModelShape> tiny;
  std::span<const ModelShape> published;  // the sizes of the releases' config files
  bool mxfp4_blocks = false;              // released with experts in MXFP4, a layer's in one tensor
};

// Of all families.
std::span<const ModelShape> tiny_shapes();
std::span<const ModelShape> published_shapes();
std::span<const ModelShape> known_shapes();  // both
std::string shape_names();                   // "tiny, tiny-dense, ..."
// Throws invalid_request with the names that exist.
const ModelShape& find_shape(std::string_view name);

std::vector<PlannedTensor> plan_tensors(const ModelShape& shape, const StorageScheme& scheme);

// What the shape's own config.json is read as.
ModelConfig config_of(const ModelShape& shape);

// config.json. Ids of tokens go in as they are; modules as for describe_quantization.
std::string config_text(const ModelShape& shape, const TokenIds& ids, const StorageScheme& scheme,
                        const std::vector<StoredModule>& modules);

}  // namespace fourfold::checkpoint
