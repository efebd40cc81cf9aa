#include "checkpoint/write/quantize_plan.h"

#include <unordered_map>

#include "base/error.h"
#include "base/nvfp4.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::string_view kSuffix = ".weight";

bool is_plain(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32; }

// Modules with one key share a scale.
std::string scale_key(const std::string& module) {
  struct Family {
    std::string_view leaf;
    std::string_view shared;
  };
  constexpr Family families[] = {{".gate_proj", ".gate_up"},
                                 {".up_proj", ".gate_up"},
                                 {".w1", ".gate_up"},
                                 {".w3", ".gate_up"},
                                 {".q_proj", ".qkv"},
                                 {".k_proj", ".qkv"},
                                 {".v_proj", ".qkv"},
                                 {".in_proj_qkv", ".in_proj_qkvz"},
                                 {".in_proj_z", ".in_proj_qkvz"}};
  for (const Family& family : families)
    if (module.ends_with(family.leaf))
      return module.substr(0, module.size() - family.leaf.size()) + std::string(family.shared);
  return module;
}

class Planner {
 public:
  Planner(const StorageScheme& scheme, std::int64_t layer_count)
      : scheme_(scheme), layer_count_(layer_count) {}

  void add(const TensorView& tensor) {
    const StoredAs stored = scheme_.of(role_of(tensor.name, layer_count_));
    const bool stacked = tensor.shape.rank() == 3;
    const bool matrix = tensor.shape.rank() == 2 && tensor.name.ends_with(kSuffix);
    const std::string name(tensor.name);
    const std::string module = matrix ? name.substr(0, name.size() - kSuffix.size()) : name;
    if (stored == StoredAs::plain || (!stacked && !matrix)) {
      if (matrix && !name.ends_with("embed_tokens.weight"))
        plan_.modules.push_back({module, StoredAs::plain});
      return copy(tensor);
    }
    if (!is_plain(tensor.dtype))
      fail(Code::unsupported_model, "{} is {}; only 16- and 32-bit matrices can be quantised", name,
           describe(tensor));
    const std::int64_t columns = tensor.shape[tensor.shape.rank() - 1];
    if (stored == StoredAs::nvfp4 && columns % kNvfp4BlockColumns != 0) {
      plan_.unsuited.push_back(name);
      plan_.modules.push_back({module, StoredAs::plain});
      return copy(tensor);
    }
    if (matrix) return quantize(tensor, module, 0, tensor.shape[0], stored);
    experts(tensor, stored);
  }

  QuantizePlan finish() { return std::move(plan_); }

 private:
  void copy(const TensorView& tensor) {
    plan_.copies.push_back({&tensor, plan_.outputs.size()});
    plan_.outputs.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
  }

  // experts.gate_up_proj [E, 2I, H] and experts.down_proj [E, H, I], one expert after another.
  void experts(const TensorView& tensor, StoredAs stored) {
    const std::string name(tensor.name);
    const std::string prefix = name.substr(0, name.rfind('.') + 1);
    const bool down = name.ends_with(".down_proj");
    const std::int64_t rows = tensor.shape[1];
    for (std::int64_t e = 0; e < tensor.shape[0]; ++e) {
      const std::string module = fourfold::format("{}{}.", prefix, e);
      if (down) {
        quantize(tensor, module + "down_proj", e * rows, rows, stored);
        continue;
      }
      quantize(tensor, module + "gate_proj", e * rows, rows / 2, stored);
      quantize(tensor, module + "up_proj", e * rows + rows / 2, rows / 2, stored);
    }
  }

  void quantize(const TensorView& tensor, const std::string& module, std::int64_t first_row,
                std::int64_t rows, StoredAs stored) {
    const std::int64_t columns = tensor.shape[tensor.shape.rank() - 1];
    // FP8 keeps a scale of its own for each matrix: every loader takes that.
    const std::string key = stored == StoredAs::nvfp4 ? scale_key(module) : module;
    const auto [place, is_new] = group_of_.try_emplace(key, plan_.groups.size());
    if (is_new) plan_.groups.emplace_back();
    plan_.groups[place->second].push_back({&tensor, first_row, rows, columns, stored, plan_.outputs.size()});
    for (TensorSpec& spec : tensors_of(scheme_, stored, module, {rows, columns}))
      plan_.outputs.push_back(std::move(spec));
    plan_.modules.push_back({module, stored});
  }

  const StorageScheme& scheme_;
  std::int64_t layer_count_;
  QuantizePlan plan_;
  std::unordered_map<std::string, std::size_t> group_of_;
};

}  // namespace

QuantizePlan plan_quantization(const Checkpoint& in, const StorageScheme& scheme, std::int64_t layer_count) {
  Planner planner(scheme, layer_count);
  for (const TensorView& tensor : in.tensors()) planner.add(tensor);
  return planner.finish();
}

}  // namespace fourfold::checkpoint
