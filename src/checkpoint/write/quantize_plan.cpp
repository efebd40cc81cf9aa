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
  Planner(const StorageScheme& scheme, std::int64_t layer_count, const ModelWeights& weights)
      : scheme_(scheme), layer_count_(layer_count) {
    for_each_matrix(weights, [&](const Matrix& matrix) {
      if (matrix.transposed) turned_[matrix.name].push_back(&matrix);
    });
  }

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
    const auto turned = turned_.find(tensor.name);
    const std::int64_t columns =
        turned != turned_.end() ? turned->second.front()->columns : tensor.shape[tensor.shape.rank() - 1];
    if (stored == StoredAs::nvfp4 && columns % kNvfp4BlockColumns != 0) {
      plan_.unsuited.push_back(name);
      plan_.modules.push_back({module, StoredAs::plain});
      return copy(tensor);
    }
    const Rows whole{0, tensor.shape[0], columns};
    if (matrix) return quantize(tensor, module, whole, stored);
    if (turned != turned_.end()) return turned_experts(tensor, turned->second, stored);
    experts(tensor, stored);
  }

  QuantizePlan finish() { return std::move(plan_); }

 private:
  void copy(const TensorView& tensor) {
    plan_.copies.push_back({&tensor, plan_.outputs.size()});
    plan_.outputs.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
  }

  struct Rows {
    std::int64_t first, count, columns;
    const Matrix* turned = nullptr;
  };

  static std::string expert_prefix(const TensorView& tensor, std::int64_t expert) {
    const std::string name(tensor.name);
    return fourfold::format("{}{}.", name.substr(0, name.rfind('.') + 1), expert);
  }
  static bool is_down(const TensorView& tensor) { return tensor.name.ends_with(".down_proj"); }

  // experts.gate_up_proj [E, 2I, H] and experts.down_proj [E, H, I], one expert after another.
  void experts(const TensorView& tensor, StoredAs stored) {
    const std::int64_t rows = tensor.shape[1], columns = tensor.shape[2];
    for (std::int64_t e = 0; e < tensor.shape[0]; ++e) {
      const std::string module = expert_prefix(tensor, e);
      if (is_down(tensor)) {
        quantize(tensor, module + "down_proj", {e * rows, rows, columns}, stored);
        continue;
      }
      quantize(tensor, module + "gate_proj", {e * rows, rows / 2, columns}, stored);
      quantize(tensor, module + "up_proj", {e * rows + rows / 2, rows / 2, columns}, stored);
    }
  }

  // The same in gpt-oss's layout, read through the matrices that it was bound to: gate and up of each expert
  // in turns, or down of each.
  void turned_experts(const TensorView& tensor, const std::vector<const Matrix*>& matrices, StoredAs stored) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const std::size_t expert = is_down(tensor) ? i : i / 2;
      const char* leaf = is_down(tensor) ? "down_proj" : i % 2 == 0 ? "gate_proj" : "up_proj";
      quantize(tensor, expert_prefix(tensor, static_cast<std::int64_t>(expert)) + leaf,
               {0, matrices[i]->rows, matrices[i]->columns, matrices[i]}, stored);
    }
  }

  void quantize(const TensorView& tensor, const std::string& module, const Rows& rows, StoredAs stored) {
    // FP8 keeps a scale of its own for each matrix: every loader takes that.
    const std::string key = stored == StoredAs::nvfp4 ? scale_key(module) : module;
    const auto [place, is_new] = group_of_.try_emplace(key, plan_.groups.size());
    if (is_new) plan_.groups.emplace_back();
    plan_.groups[place->second].push_back(
        {&tensor, rows.first, rows.count, rows.columns, stored, plan_.outputs.size(), rows.turned});
    for (TensorSpec& spec : tensors_of(scheme_, stored, module, {rows.count, rows.columns}))
      plan_.outputs.push_back(std::move(spec));
    plan_.modules.push_back({module, stored});
  }

  const StorageScheme& scheme_;
  std::int64_t layer_count_;
  QuantizePlan plan_;
  std::unordered_map<std::string, std::size_t> group_of_;
  std::unordered_map<std::string_view, std::vector<const Matrix*>> turned_;  // by tensor
};

}  // namespace

QuantizePlan plan_quantization(const Checkpoint& in, const StorageScheme& scheme, std::int64_t layer_count,
                               const ModelWeights& weights) {
  Planner planner(scheme, layer_count, weights);
  for (const TensorView& tensor : in.tensors()) planner.add(tensor);
  return planner.finish();
}

}  // namespace fourfold::checkpoint
