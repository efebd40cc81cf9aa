#include "checkpoint/write/quantize_plan.h"

#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "base/nvfp4.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::string_view kSuffix = ".weight";

bool is_plain(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32; }

// What a tensor was bound to: itself, several views of it, or the experts that it stacks.
struct BoundTensor {
  struct Part {
    const Matrix* matrix;
    std::size_t group;
  };
  std::vector<Part> parts;

  const Matrix& first() const { return *parts.front().matrix; }
  bool is_stacked() const { return !first().expert_module.empty(); }
};

class Planner {
 public:
  Planner(const StorageScheme& scheme, const ModelWeights& weights)
      : scheme_(scheme), embedding_(weights.embedding.name) {
    std::size_t group = 0;
    for_each_group(weights, [&](std::span<const Matrix* const> matrices) {
      for (const Matrix* matrix : matrices) bound_[matrix->name].parts.push_back({matrix, group});
      ++group;
    });
  }

  void add(const TensorView& tensor) {
    const auto found = bound_.find(tensor.name);
    const BoundTensor* bound = found == bound_.end() ? nullptr : &found->second;
    const StoredAs stored = bound == nullptr ? StoredAs::plain : scheme_.of(bound->first());
    const bool is_expert = bound != nullptr && bound->first().role == TensorRole::routed_expert;
    const bool is_module = tensor.shape.rank() == 2 && tensor.name.ends_with(kSuffix);
    const std::string name(tensor.name);
    const std::string module = is_module ? name.substr(0, name.size() - kSuffix.size()) : name;
    if (stored == StoredAs::plain) {
      if (is_module && tensor.name != embedding_) plan_.modules.push_back({module, stored, is_expert});
      return copy(tensor);
    }
    if (!is_plain(tensor.dtype))
      fail(Code::unsupported_model, "{} is {}; only 16- and 32-bit matrices can be quantised", name,
           describe(tensor));
    if (stored == StoredAs::nvfp4 && bound->first().columns % kNvfp4BlockColumns != 0) {
      plan_.unsuited.push_back(name);
      plan_.modules.push_back({module, StoredAs::plain, is_expert});
      return copy(tensor);
    }
    if (!bound->is_stacked()) {
      check(is_module, "experts that a tensor stacks have names (name_experts)", tensor.name);
      return quantize({&tensor, nullptr, tensor.shape[0], tensor.shape[1], stored, 0}, module,
                      bound->parts.front().group, is_expert);
    }
    for (const auto& [matrix, group] : bound->parts)
      quantize({&tensor, matrix, matrix->rows, matrix->columns, stored, 0}, matrix->expert_module, group,
               is_expert);
  }

  QuantizePlan finish() { return std::move(plan_); }

 private:
  void copy(const TensorView& tensor) {
    plan_.copies.push_back({&tensor, plan_.outputs.size()});
    plan_.outputs.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
  }

  void quantize(QuantizedPiece piece, const std::string& module, std::size_t bound_group, bool is_expert) {
    // FP8 keeps a scale of its own for each matrix: every loader takes that.
    std::size_t group = plan_.groups.size();
    if (piece.stored == StoredAs::nvfp4) group = group_of_.try_emplace(bound_group, group).first->second;
    if (group == plan_.groups.size()) plan_.groups.emplace_back();
    piece.first_output = plan_.outputs.size();
    plan_.groups[group].push_back(piece);
    for (TensorSpec& spec : tensors_of(scheme_, piece.stored, module, {piece.rows, piece.columns}))
      plan_.outputs.push_back(std::move(spec));
    plan_.modules.push_back({module, piece.stored, is_expert});
  }

  const StorageScheme& scheme_;
  std::string_view embedding_;
  QuantizePlan plan_;
  std::unordered_map<std::size_t, std::size_t> group_of_;
  std::unordered_map<std::string_view, BoundTensor> bound_;  // by name
};

}  // namespace

QuantizePlan plan_quantization(const Checkpoint& in, const StorageScheme& scheme,
                               const ModelWeights& weights) {
  Planner planner(scheme, weights);
  for (const TensorView& tensor : in.tensors()) planner.add(tensor);
  return planner.finish();
}

}  // namespace fourfold::checkpoint
