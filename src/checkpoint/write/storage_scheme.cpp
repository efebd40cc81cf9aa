#include "checkpoint/write/storage_scheme.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/format.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"

namespace fourfold::checkpoint {
namespace {

bool is_compressed(const StorageScheme& scheme) { return scheme.names == NameConvention::compressed_tensors; }

std::string_view before_last_dot(std::string_view name) { return name.substr(0, name.rfind('.')); }
bool is_number(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

// The experts of a layer are one entry: "model.layers.3.mlp.experts.17.up_proj" and, stacked,
// "model.layers.3.mlp.experts.up_proj" -> "model.layers.3.mlp.experts".
std::string listed_name(const StoredModule& module) {
  if (!module.is_expert) return module.module;
  const std::string_view parent = before_last_dot(module.module);
  const bool is_one = is_number(parent.substr(parent.rfind('.') + 1));
  return std::string(is_one ? before_last_dot(parent) : parent);
}

// Names in the order of the model, each once; `of_experts` of the name.
std::vector<std::string> listed(const std::vector<StoredModule>& modules, StoredAs stored,
                                const std::function<std::string(std::string)>& of_experts = std::identity()) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const StoredModule& module : modules)
    if (module.stored == stored)
      if (std::string name = listed_name(module); seen.insert(name).second)
        names.push_back(module.is_expert ? of_experts(std::move(name)) : std::move(name));
  return names;
}

void write_texts(JsonWriter& json, std::string_view key, const std::vector<std::string>& texts) {
  json.key(key).begin_array();
  for (const std::string& text : texts) json.value(std::string_view(text));
  json.end_array();
}

void write_producer(JsonWriter& json) {
  json.key("producer")
      .begin_object()
      .member("name", "fourfold")
      .member("version", FOURFOLD_VERSION_TEXT)
      .end_object();
}

bool stores(const std::vector<StoredModule>& modules, StoredAs stored) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const StoredModule& module) { return module.stored == stored; });
}

// ModelOpt has one word for "all quantised matrices are W4A4"; everything else is a list.
bool is_uniform(const StorageScheme& scheme, const std::vector<StoredModule>& modules) {
  return scheme.input_scales && !stores(modules, StoredAs::fp8) && !stores(modules, StoredAs::mxfp4);
}

void write_modelopt(JsonWriter& json, const StorageScheme& scheme, const std::vector<StoredModule>& modules,
                    std::string_view kept_key) {
  const bool uniform = is_uniform(scheme, modules);
  json.member("quant_algo", uniform ? "NVFP4" : "MIXED_PRECISION");
  if (uniform) json.member("group_size", kNvfp4BlockColumns);
  if (!uniform) {
    json.key("quantized_layers").begin_object();
    for (const std::string& name : listed(modules, StoredAs::fp8))
      json.key(name).begin_object().member("quant_algo", "FP8").end_object();
    for (const std::string& name : listed(modules, StoredAs::nvfp4))
      json.key(name)
          .begin_object()
          .member("quant_algo", scheme.input_scales ? "NVFP4" : "W4A16_NVFP4")
          .member("group_size", kNvfp4BlockColumns)
          .end_object();
    for (const std::string& name : listed(modules, StoredAs::mxfp4))
      json.key(name)
          .begin_object()
          .member("quant_algo", "MXFP4")
          .member("group_size", kMxfp4BlockColumns)
          .end_object();
    json.end_object();
  }
  write_texts(json, kept_key, listed(modules, StoredAs::plain));
}

std::string_view format_of(StoredAs stored) {
  switch (stored) {
    case StoredAs::nvfp4: return "nvfp4-pack-quantized";
    case StoredAs::mxfp4: return "mxfp4-pack-quantized";
    case StoredAs::plain:
    case StoredAs::fp8: break;
  }
  return "float-quantized";
}

void write_group(JsonWriter& json, std::string_view name, StoredAs stored, const StorageScheme& scheme,
                 const std::vector<std::string>& targets) {
  const bool micro = stored == StoredAs::mxfp4, four = stored == StoredAs::nvfp4 || micro;
  const auto numbers = [&](std::string_view key, bool activations) {
    json.key(key).begin_object().member("num_bits", four ? 4 : 8).member("type", "float");
    json.member("symmetric", true).member("strategy", micro ? "group" : four ? "tensor_group" : "tensor");
    if (four) json.member("group_size", micro ? kMxfp4BlockColumns : kNvfp4BlockColumns);
    if (four && activations)
      json.member("dynamic", "local");
    else
      json.member("dynamic", false);
    json.end_object();
  };
  json.key(name).begin_object().member("format", format_of(stored));
  write_texts(json, "targets", targets);
  numbers("weights", false);
  if (four && !micro && scheme.input_scales)
    numbers("input_activations", true);
  else
    json.member("input_activations", nullptr);
  json.member("output_activations", nullptr).end_object();
}

void write_compressed(JsonWriter& json, const StorageScheme& scheme,
                      const std::vector<StoredModule>& modules) {
  std::vector<StoredAs> kinds;
  for (const StoredAs stored : {StoredAs::nvfp4, StoredAs::mxfp4, StoredAs::fp8})
    if (stores(modules, stored)) kinds.push_back(stored);
  const bool mixed = kinds.size() > 1;
  json.member("quant_method", "compressed-tensors");
  json.member("format", mixed           ? "mixed-precision"
                        : kinds.empty() ? "float-quantized"
                                        : format_of(kinds.front()));
  json.key("config_groups").begin_object();
  // A target is a module; the experts of a layer are many. Readers may have the layers under another name.
  const auto targets = [&](StoredAs stored) {
    return listed(modules, stored, [](const std::string& name) {
      const std::size_t layers = name.find("layers.");
      return "re:.*" + name.substr(layers == std::string::npos ? 0 : layers) + "\\..*";
    });
  };
  for (std::size_t i = 0; i < kinds.size(); ++i)
    write_group(json, fourfold::format("group_{}", i), kinds[i], scheme,
                mixed ? targets(kinds[i]) : std::vector<std::string>{"Linear"});
  json.end_object();
  write_texts(json, "ignore", listed(modules, StoredAs::plain));
  json.member("kv_cache_scheme", nullptr).member("quantization_status", "compressed");
}

}  // namespace

StoredAs StorageScheme::of(const Matrix& matrix) const {
  if (matrix.of_mtp) return StoredAs::plain;
  switch (matrix.role) {
    case TensorRole::routed_expert: return routed;
    case TensorRole::shared_expert:
    case TensorRole::dense_mlp: return shared;
    case TensorRole::attention: return attention;
    case TensorRole::delta: return delta;
    case TensorRole::head: return head;
    case TensorRole::router:
    case TensorRole::other: break;
  }
  return StoredAs::plain;
}

std::vector<TensorSpec> tensors_of(const StorageScheme& scheme, StoredAs stored, const std::string& module,
                                   Shape shape) {
  const bool compressed = is_compressed(scheme);
  if (stored == StoredAs::plain) return {{module + ".weight", DType::bf16, shape}};
  const Shape one = compressed ? Shape{1} : Shape{};
  if (stored == StoredAs::fp8)
    return {{module + ".weight", DType::f8_e4m3, shape}, {module + ".weight_scale", DType::f32, one}};
  if (stored == StoredAs::mxfp4 && scheme.names == NameConvention::mxfp4_blocks) {
    const std::int64_t blocks = shape[2] / kMxfp4BlockColumns;
    return {{module + "_blocks", DType::u8, {shape[0], shape[1], blocks, kMxfp4BlockColumns / 2}},
            {module + "_scales", DType::u8, {shape[0], shape[1], blocks}}};
  }
  if (stored == StoredAs::mxfp4)
    return {{module + (compressed ? ".weight_packed" : ".weight"), DType::u8, {shape[0], shape[1] / 2}},
            {module + ".weight_scale", DType::u8, {shape[0], shape[1] / kMxfp4BlockColumns}}};
  std::vector<TensorSpec> tensors{
      {module + (compressed ? ".weight_packed" : ".weight"), DType::u8, {shape[0], shape[1] / 2}},
      {module + ".weight_scale", DType::f8_e4m3, {shape[0], shape[1] / kNvfp4BlockColumns}},
      {module + (compressed ? ".weight_global_scale" : ".weight_scale_2"), DType::f32, one}};
  if (scheme.input_scales)
    tensors.push_back({module + (compressed ? ".input_global_scale" : ".input_scale"), DType::f32, one});
  return tensors;
}

void describe_quantization(JsonWriter& json, const StorageScheme& scheme,
                           const std::vector<StoredModule>& modules) {
  json.begin_object();
  if (is_compressed(scheme)) {
    write_compressed(json, scheme, modules);
  } else if (scheme.names == NameConvention::mxfp4_blocks) {
    json.member("quant_method", "mxfp4");
    write_texts(json, "modules_to_not_convert", listed(modules, StoredAs::plain));
  } else {
    json.member("quant_method", "modelopt");
    write_modelopt(json, scheme, modules, "ignore");
    write_producer(json);
  }
  json.end_object();
}

std::string modelopt_sidecar(const StorageScheme& scheme, const std::vector<StoredModule>& modules) {
  if (scheme.names != NameConvention::modelopt) return {};
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object();
  write_producer(json);
  json.key("quantization").begin_object();
  write_modelopt(json, scheme, modules, "exclude_modules");
  json.member("kv_cache_quant_algo", nullptr).end_object().end_object();
  return json.finish();
}

}  // namespace fourfold::checkpoint
