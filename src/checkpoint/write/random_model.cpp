#include "checkpoint/write/random_model.h"

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/bf16.h"
#include "base/check.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"
#include "base/parallel.h"
#include "base/random.h"
#include "checkpoint/bind.h"

namespace fourfold::checkpoint {
namespace {

using Fill = PlannedTensor::Fill;

constexpr std::string_view kSuffix = ".weight";
constexpr std::int64_t kChunkElements = 1 << 18;
// Deviations from the mean that count as a matrix's largest weight, with the largest row factor.
constexpr double kAmaxDeviations = 4.5 * 1.5;
// Root mean square of the sixteen E2M1 values, each as likely: sqrt(8.5625).
constexpr double kCodeDeviation = 2.9261749776799064;
// What the makers' calibration would have found for inputs.
constexpr float kInputAmax = 8.0f;

// FNV-1a: the standard library's hash differs between vendors.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  return hash;
}

// Four sixteen-bit uniforms added up: mean 0, deviation 1, within 3.47, and no function of the platform's
// mathematics library.
double normal_of(std::uint64_t bits) {
  const std::uint64_t sum =
      (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
  return (static_cast<double>(sum) - 131070.0) / 37837.227;
}

double uniform_of(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// One tensor's stream of numbers.
class Numbers {
 public:
  Numbers(const PlannedTensor& tensor, std::uint64_t seed)
      : tensor_(tensor),
        seed_(mix_bits(seed) ^ hash_of(tensor.name)),
        columns_(tensor.shape.rank() == 0 ? 1 : tensor.shape[tensor.shape.rank() - 1]) {}

  // Deviation of the elements of a linear tensor before its row's factor.
  double deviation() const { return tensor_.a / std::sqrt(static_cast<double>(columns_)); }
  double row_factor(std::int64_t row) const {
    return 0.5 + uniform_of(random_bits(~seed_, static_cast<std::uint64_t>(row)));
  }
  std::uint64_t bits(std::int64_t index) const {
    return random_bits(seed_, static_cast<std::uint64_t>(index));
  }
  std::int64_t columns() const { return columns_; }

  void fill(std::int64_t first, std::span<float> out) const {
    std::int64_t index = first;
    double scale = 0;
    for (float& x : out) {
      if (tensor_.fill == Fill::linear && (index == first || index % columns_ == 0))
        scale = deviation() * row_factor(index / columns_);
      const std::uint64_t draw = bits(index++);
      switch (tensor_.fill) {
        case Fill::linear: x = static_cast<float>(scale * normal_of(draw)); break;
        case Fill::normal: x = static_cast<float>(tensor_.b + tensor_.a * normal_of(draw)); break;
        case Fill::uniform:
          x = static_cast<float>(tensor_.a + (tensor_.b - tensor_.a) * uniform_of(draw));
          break;
      }
    }
  }

 private:
  const PlannedTensor& tensor_;
  std::uint64_t seed_;
  std::int64_t columns_;
};

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape.sizes()) count *= size;
  return count;
}

// A tensor of the plan and where its stored parts stand in the writer's list.
struct Job {
  const PlannedTensor* tensor;
  StoredAs stored;
  std::size_t first;
  bool is_embedding;
};

class Filler {
 public:
  Filler(CheckpointWriter& writer, const RandomModelOptions& options) : writer_(writer), options_(options) {}

  void write(const Job& job) {
    const Numbers numbers(*job.tensor, options_.seed);
    const bool hole = options_.sparse && job.tensor->shape.rank() >= 2 && job.tensor->fill == Fill::linear;
    switch (job.stored) {
      case StoredAs::plain:
        if (!hole && !(options_.sparse && job.is_embedding)) plain(job, numbers);
        break;
      case StoredAs::fp8: fp8(job, numbers, hole); break;
      case StoredAs::nvfp4: nvfp4(job, numbers, hole); break;
      case StoredAs::mxfp4: mxfp4(job, numbers, hole); break;
    }
  }

 private:
  template <class Element, class Convert>
  void convert_all(const Job& job, const Numbers& numbers, const Convert& convert) {
    const std::int64_t count = element_count(job.tensor->shape);
    std::vector<float> values;
    std::vector<Element> stored;
    for (std::int64_t at = 0; at < count; at += kChunkElements) {
      values.resize(static_cast<std::size_t>(std::min(kChunkElements, count - at)));
      numbers.fill(at, values);
      stored.clear();
      for (const float x : values) stored.push_back(convert(x));
      put(job.first, static_cast<std::uint64_t>(at) * sizeof(Element), std::span<const Element>(stored));
    }
  }

  void plain(const Job& job, const Numbers& numbers) {
    convert_all<Bf16>(job, numbers, [](float x) { return to_bf16(x); });
  }

  void fp8(const Job& job, const Numbers& numbers, bool hole) {
    const auto scale = static_cast<float>(numbers.deviation() * kAmaxDeviations / kE4m3Largest);
    put_scalar(job.first + 1, scale);
    if (!hole) convert_all<E4m3>(job, numbers, [&](float x) { return to_e4m3(x / scale); });
  }

  // Random codes rather than quantised normals: sixteen for one draw, which is what makes 250 GB bearable.
  void nvfp4(const Job& job, const Numbers& numbers, bool hole) {
    const float global = nvfp4_weight_global_scale(static_cast<float>(numbers.deviation() * kAmaxDeviations));
    const bool inverse = options_.scheme.names == NameConvention::compressed_tensors;
    put_scalar(job.first + 2, inverse ? 1.0f / global : global);
    const float input = kInputAmax / (kE2m1Largest * kE4m3Largest);
    if (options_.scheme.input_scales) put_scalar(job.first + 3, inverse ? 1.0f / input : input);
    if (hole) return;

    const std::int64_t rows = job.tensor->shape[0];
    const std::int64_t blocks = numbers.columns() / kNvfp4BlockColumns;
    const std::int64_t rows_at_once = std::max<std::int64_t>(1, kChunkElements / numbers.columns());
    std::vector<std::uint64_t> codes;  // eight bytes, sixteen codes each
    std::vector<E4m3> scales;
    for (std::int64_t row = 0; row < rows; ++row) {
      const double wanted = numbers.row_factor(row) * numbers.deviation() / (kCodeDeviation * global);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t index = row * blocks + block;
        codes.push_back(numbers.bits(2 * index));
        const double factor = 0.75 + 0.5 * uniform_of(numbers.bits(2 * index + 1));
        scales.push_back(to_e4m3(static_cast<float>(wanted * factor)));
      }
      if ((row + 1) % rows_at_once != 0 && row + 1 != rows) continue;
      const auto offset = static_cast<std::uint64_t>((row + 1) * blocks) - scales.size();
      put(job.first, offset * 8, std::span<const std::uint64_t>(codes));
      put(job.first + 1, offset, std::span<const E4m3>(scales));
      codes.clear(), scales.clear();
    }
  }

  // Quantised normals: a power of two cannot follow the row factors of random codes.
  void mxfp4(const Job& job, const Numbers& numbers, bool hole) {
    if (hole) return;  // scales of 2^-127, which are as good as any for zeros
    const std::int64_t columns = numbers.columns(), rows = element_count(job.tensor->shape) / columns;
    std::vector<float> values(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      numbers.fill(row * columns, values);
      const Mxfp4Matrix made = quantize_mxfp4_weights(values, 1, columns);
      put(job.first, static_cast<std::uint64_t>(row * columns / 2),
          std::span<const std::uint8_t>(made.codes));
      put(job.first + 1, static_cast<std::uint64_t>(row * columns / kMxfp4BlockColumns),
          std::span<const Ue8m0>(made.scales));
    }
  }

  template <class T>
  void put(std::size_t tensor, std::uint64_t offset, std::span<const T> values) {
    writer_.write(tensor, offset, std::as_bytes(values));
  }
  void put_scalar(std::size_t tensor, float value) { put(tensor, 0, std::span<const float>(&value, 1)); }

  CheckpointWriter& writer_;
  const RandomModelOptions& options_;
};

struct Plan {
  std::vector<PlannedTensor> tensors;
  std::vector<TensorSpec> stored;
  std::vector<Job> jobs;
  std::vector<StoredModule> modules;
};

// What a shape's matrices are in the model: its tensors as they are in 16 bits, read by the family itself.
class BoundShape {
 public:
  explicit BoundShape(const ModelShape& shape)
      : checkpoint_(std::string(shape.name), entries_of(shape)),
        model_(bind_model(checkpoint_, config_of(shape))) {
    for_each_matrix(model_.weights, [&](const Matrix& matrix) {
      matrices_[std::string(matrix.name)] = &matrix;
      if (!matrix.expert_module.empty()) matrices_[matrix.expert_module + std::string(kSuffix)] = &matrix;
    });
  }

  // `tensor` may also be of one of the experts that are stacked in 16 bits.
  const Matrix& matrix(const std::string& tensor) const {
    const auto found = matrices_.find(tensor);
    check(found != matrices_.end(), "the family reads what its maker makes", tensor);
    return *found->second;
  }
  bool is_embedding(const std::string& tensor) const { return tensor == model_.weights.embedding.name; }

 private:
  static std::vector<TensorEntry> entries_of(const ModelShape& shape) {
    std::vector<TensorEntry> entries;
    std::uint64_t end = 0;
    for (const PlannedTensor& tensor : plan_tensors(shape, {})) {
      const std::uint64_t begin = end;
      end += TensorSpec{tensor.name, DType::bf16, tensor.shape}.bytes();
      entries.push_back({tensor.name, DType::bf16, tensor.shape, begin, end});
    }
    return entries;
  }

  Checkpoint checkpoint_;
  BoundModel model_;
  std::unordered_map<std::string, const Matrix*> matrices_;
};

// A matrix, or the stacked experts of a layer in a scheme that stores them so.
bool is_module(const PlannedTensor& tensor, const StorageScheme& scheme) {
  if (tensor.fill != Fill::linear) return false;
  if (tensor.shape.rank() == 3) return scheme.names == NameConvention::mxfp4_blocks;
  return tensor.shape.rank() == 2 && tensor.name.ends_with(kSuffix);
}

Plan make_plan(const RandomModelOptions& options) {
  const BoundShape shape(options.shape);
  Plan plan;
  plan.tensors = plan_tensors(options.shape, options.scheme);
  for (const PlannedTensor& tensor : plan.tensors) {
    const bool is_matrix = is_module(tensor, options.scheme);
    const Matrix* matrix = is_matrix ? &shape.matrix(tensor.name) : nullptr;
    const StoredAs stored = is_matrix ? options.scheme.of(*matrix) : StoredAs::plain;
    const bool has_suffix = is_matrix && tensor.name.ends_with(kSuffix);
    const std::string module = tensor.name.substr(0, tensor.name.size() - (has_suffix ? kSuffix.size() : 0));
    plan.jobs.push_back({&tensor, stored, plan.stored.size(), shape.is_embedding(tensor.name)});
    if (stored == StoredAs::plain) {
      plan.stored.push_back({tensor.name, DType::bf16, tensor.shape});
    } else {
      for (TensorSpec& spec : tensors_of(options.scheme, stored, module, tensor.shape))
        plan.stored.push_back(std::move(spec));
    }
    if (is_matrix) plan.modules.push_back({module, stored, matrix->role == TensorRole::routed_expert});
  }
  return plan;
}

}  // namespace

StorageScheme scheme_named(std::string_view name) {
  StorageScheme scheme;
  if (name == "bf16") return scheme;
  scheme.routed = StoredAs::nvfp4;
  if (name == "modelopt") {
    scheme.input_scales = true;
  } else if (name == "modelopt-mixed") {
    scheme.shared = scheme.head = StoredAs::nvfp4;
    scheme.attention = scheme.delta = StoredAs::fp8;
  } else if (name == "compressed-tensors") {
    scheme.names = NameConvention::compressed_tensors;
    scheme.shared = scheme.attention = StoredAs::nvfp4;
    scheme.input_scales = true;
  } else if (name == "mxfp4") {
    scheme.names = NameConvention::compressed_tensors;
    scheme.routed = StoredAs::mxfp4;
  } else if (name == "nvfp4") {
    scheme.shared = scheme.attention = scheme.delta = scheme.head = StoredAs::nvfp4;
    scheme.input_scales = true;
  } else {
    fail_with_hint(Code::invalid_request,
                   "known formats: bf16, modelopt, modelopt-mixed, compressed-tensors, nvfp4, mxfp4",
                   "unknown format '{}'", name);
  }
  return scheme;
}

RandomModelSummary write_random_model(const OutputFolder& folder, const RandomModelOptions& given,
                                      const TokenIds& ids, const LoadProgress::Report& report) {
  RandomModelOptions options = given;
  if (options.shape.family->maker->mxfp4_blocks && options.scheme.routed == StoredAs::mxfp4)
    options.scheme.names = NameConvention::mxfp4_blocks;
  const Plan plan = make_plan(options);
  CheckpointWriter writer(folder.path(), plan.stored,
                          {.shard_bytes = options.shard_bytes, .sparse = options.sparse});
  LoadProgress progress(writer.tensor_bytes(), report);
  Filler filler(writer, options);
  parallel_for(static_cast<std::int64_t>(plan.jobs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      filler.write(plan.jobs[at]);
      const std::size_t past = at + 1 < plan.jobs.size() ? plan.jobs[at + 1].first : plan.stored.size();
      std::uint64_t bytes = 0;
      for (std::size_t k = plan.jobs[at].first; k < past; ++k) bytes += plan.stored[k].bytes();
      progress.add(bytes);
    }
  });
  writer.finish();
  folder.write("config.json", config_text(options.shape, ids, options.scheme, plan.modules));
  if (options.scheme.quantizes())
    if (const std::string sidecar = modelopt_sidecar(options.scheme, plan.modules); !sidecar.empty())
      folder.write("hf_quant_config.json", sidecar);
  return {plan.stored.size(), writer.tensor_bytes()};
}

}  // namespace fourfold::checkpoint
