// The three spellings of a quantisation description, one result.
#include "checkpoint/quantization.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/matrix.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

namespace bj = boost::json;

constexpr json::Limits kLimits{.text_bytes_max = std::size_t{64} << 20, .depth_max = 32};
constexpr const char* kKnownAlgorithms =
    "NVFP4, NVFP4_AWQ, W4A16_NVFP4, MXFP4, FP8, FP8_PB_WO, MXFP8, MIXED_PRECISION";

// ModelOpt writes names in either case: its own recipes are in lower case, what it exports mostly is not.
std::string in_capitals(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::optional<QuantAlgorithm> algorithm_from_name(std::string_view written) {
  const std::string name = in_capitals(written);
  // Per tensor, per row, or 128 x 128 blocks: the tensors say which.
  if (name == "FP8" || name == "FP8_PER_CHANNEL_PER_TOKEN" || name == "FP8_PB_WO") return QuantAlgorithm::fp8;
  if (name == "MXFP8") return QuantAlgorithm::mxfp8;
  // With AWQ, a matrix may have factors for its inputs, where its makers could not multiply them into a norm.
  if (name == "NVFP4" || name == "NVFP4_AWQ") return QuantAlgorithm::nvfp4;
  if (name == "W4A16_NVFP4") return QuantAlgorithm::w4a16_nvfp4;
  if (name == "MXFP4") return QuantAlgorithm::mxfp4;
  if (name == "MIXED_PRECISION") return QuantAlgorithm::mixed_precision;
  return std::nullopt;
}

KvCacheScheme kv_cache_from_name(std::string_view written) {
  const std::string name = in_capitals(written);
  if (name.empty() || name == "NONE") return KvCacheScheme::none;
  if (name == "FP8") return KvCacheScheme::fp8;
  return name == "NVFP4" ? KvCacheScheme::nvfp4 : KvCacheScheme::other;
}

void add_unique(std::vector<QuantAlgorithm>& algorithms, QuantAlgorithm algorithm) {
  if (std::find(algorithms.begin(), algorithms.end(), algorithm) == algorithms.end())
    algorithms.push_back(algorithm);
}

bool is_fp4(QuantAlgorithm algorithm) {
  return algorithm == QuantAlgorithm::nvfp4 || algorithm == QuantAlgorithm::w4a16_nvfp4;
}

[[noreturn]] void refuse_nvfp4_group(const FieldReader& fields, std::int64_t size) {
  fail_with_hint(
      Code::unsupported_model,
      fourfold::format("Quantise the 16-bit model with one scale for {} weights (fourfold quantize IN "
                       "OUT does), or take one that is.",
                       kNvfp4BlockColumns),
      "{} is {}: NVFP4 with one scale for {} weights has no kernels here, only with one for {}",
      fields.place("group_size"), size, size, kNvfp4BlockColumns);
}

void require_group_size(FieldReader& fields, QuantAlgorithm algorithm) {
  const auto group = fields.optional_int("group_size", {0, 1 << 20});
  if (group && is_fp4(algorithm) && *group != kNvfp4BlockColumns) refuse_nvfp4_group(fields, *group);
  if (group && algorithm == QuantAlgorithm::mxfp4 && *group != kMxfp4BlockColumns)
    fields.unsupported("group_size", std::to_string(*group), "32 for MXFP4");
}

// kv_cache_scheme: a name, or the format's numbers.
KvCacheScheme kv_cache_scheme(const bj::object& object) {
  const bj::value* scheme = object.if_contains("kv_cache_scheme");
  if (scheme == nullptr || scheme->is_null()) return KvCacheScheme::none;
  if (const bj::string* name = scheme->if_string()) return kv_cache_from_name(*name);
  const bj::object* numbers = scheme->if_object();
  const bj::value* bits = numbers == nullptr ? nullptr : numbers->if_contains("num_bits");
  const bj::value* type = numbers == nullptr ? nullptr : numbers->if_contains("type");
  const bool is_float = type == nullptr || (type->is_string() && type->get_string() == "float");
  if (bits == nullptr || !bits->is_int64() || !is_float) return KvCacheScheme::other;
  if (bits->get_int64() == 8) return KvCacheScheme::fp8;
  return bits->get_int64() == 4 ? KvCacheScheme::nvfp4 : KvCacheScheme::other;
}

// quant_algo, group_size, quantized_layers: the same names in hf_quant_config.json and in
// quantization_config.
void read_modelopt(FieldReader& fields, std::string_view what, ProblemList& problems, Quantization& out) {
  const auto name = fields.optional_text("quant_algo");
  if (!name) {
    problems.add("missing", "quant_algo");
    return;
  }
  const auto algorithm = algorithm_from_name(*name);
  if (!algorithm) fields.unsupported("quant_algo", *name, kKnownAlgorithms);
  if (*algorithm != QuantAlgorithm::mixed_precision) {
    require_group_size(fields, *algorithm);
    add_unique(out.algorithms, *algorithm);
    return;
  }
  const bj::object* modules = fields.optional_object("quantized_layers");
  if (modules == nullptr) {
    // The tensors decide what each matrix is, so a file without the list still loads.
    add_unique(out.algorithms, QuantAlgorithm::mixed_precision);
    return;
  }
  for (const auto& [module, entry] : *modules) {
    const std::string prefix = "quantized_layers." + std::string(std::string_view(module)) + ".";
    if (!entry.is_object()) {
      problems.add("of the wrong type", prefix);
      continue;
    }
    FieldReader inner(entry.get_object(), what, prefix, problems);
    const std::string inner_name = inner.optional_text("quant_algo").value_or("");
    const auto inner_algorithm = algorithm_from_name(inner_name);
    if (!inner_algorithm || *inner_algorithm == QuantAlgorithm::mixed_precision)
      inner.unsupported("quant_algo", inner_name,
                        "NVFP4, NVFP4_AWQ, W4A16_NVFP4, MXFP4, FP8, FP8_PB_WO, MXFP8");
    require_group_size(inner, *inner_algorithm);
    out.modules.emplace(std::string(std::string_view(module)), *inner_algorithm);
    add_unique(out.algorithms, *inner_algorithm);
  }
}

std::string read_producer(FieldReader& fields, std::string_view what, ProblemList& problems) {
  const bj::object* producer = fields.optional_object("producer");
  if (producer == nullptr) return {};
  FieldReader inner(*producer, what, "producer.", problems);
  const std::string name = inner.optional_text("name").value_or("unknown");
  const auto version = inner.optional_text("version");
  return version ? name + " " + *version : name;
}

// One entry of compressed-tensors' config_groups.
QuantAlgorithm read_group(const bj::object& group, const std::string& prefix, const std::string& file_format,
                          std::string_view what, ProblemList& problems) {
  FieldReader fields(group, what, prefix, problems);
  const std::string format_name = fields.optional_text("format").value_or(file_format);
  const bj::object none;
  const bj::object* weights_object = fields.optional_object("weights");
  FieldReader weights(weights_object == nullptr ? none : *weights_object, what, prefix + "weights.",
                      problems);
  const std::int64_t bits = weights.required_int("num_bits", {1, 64});
  const std::string type = weights.optional_text("type").value_or("int");
  if (type != "float") weights.unsupported("type", type, "float");
  const auto group_size = weights.optional_int("group_size", {-1, 1 << 20});
  if (bits == 8) return group_size == kMxfp8BlockColumns ? QuantAlgorithm::mxfp8 : QuantAlgorithm::fp8;
  if (bits != 4) weights.unsupported("num_bits", std::to_string(bits), "4 (NVFP4, MXFP4), 8 (FP8, MXFP8)");
  // NVFP4 with a scale for 32 weights exists, and is not MXFP4: its scales are e4m3.
  const bool is_nvfp4 = format_name == "nvfp4-pack-quantized";
  if (group_size.value_or(0) == kMxfp4BlockColumns && !is_nvfp4) return QuantAlgorithm::mxfp4;
  if (group_size && is_nvfp4 && *group_size != kNvfp4BlockColumns) refuse_nvfp4_group(weights, *group_size);
  if (group_size.value_or(0) != kNvfp4BlockColumns)
    weights.unsupported("group_size", group_size ? std::to_string(*group_size) : "absent",
                        "16 for NVFP4, 32 for MXFP4");
  return fields.has("input_activations") ? QuantAlgorithm::nvfp4 : QuantAlgorithm::w4a16_nvfp4;
}

void read_compressed_tensors(FieldReader& fields, std::string_view what, ProblemList& problems,
                             Quantization& out) {
  const std::string format_name = fields.optional_text("format").value_or("");
  constexpr std::string_view formats[] = {"nvfp4-pack-quantized", "mxfp4-pack-quantized", "float-quantized",
                                          "mxfp8-quantized", "mixed-precision"};
  if (std::find(std::begin(formats), std::end(formats), format_name) == std::end(formats))
    fields.unsupported("format", format_name,
                       "nvfp4-pack-quantized, mxfp4-pack-quantized, float-quantized, mxfp8-quantized, "
                       "mixed-precision");
  const bj::object* groups = fields.optional_object("config_groups");
  if (groups == nullptr) {
    problems.add("missing", "quantization_config.config_groups");
    return;
  }
  for (const auto& [name, group] : *groups) {
    const std::string prefix = "config_groups." + std::string(std::string_view(name)) + ".";
    if (!group.is_object())
      problems.add("of the wrong type", prefix);
    else
      add_unique(out.algorithms, read_group(group.get_object(), prefix, format_name, what, problems));
  }
  out.excluded = fields.optional_texts("ignore");
  out.producer = "compressed-tensors " + fields.optional_text("version").value_or("");
}

// quantization_config of config.json.
Quantization read_inline(const bj::object& object, std::string_view what, ProblemList& problems) {
  Quantization out;
  FieldReader fields(object, what, "quantization_config.", problems);
  const std::string method = fields.optional_text("quant_method").value_or("");
  if (method == "modelopt" || method == "modelopt_fp4" || method == "modelopt_mixed") {
    out.method = QuantMethod::modelopt;
    read_modelopt(fields, what, problems, out);
    out.excluded = fields.optional_texts("ignore");
    out.producer = read_producer(fields, what, problems);
  } else if (method == "compressed-tensors") {
    out.method = QuantMethod::compressed_tensors;
    read_compressed_tensors(fields, what, problems, out);
  } else if (method == "fp8") {
    out.method = QuantMethod::fp8;
    out.algorithms = {QuantAlgorithm::fp8};
    out.excluded = fields.optional_texts("modules_to_not_convert");
  } else if (method == "mxfp4") {  // gpt-oss
    out.method = QuantMethod::mxfp4;
    out.algorithms = {QuantAlgorithm::mxfp4};
    out.excluded = fields.optional_texts("modules_to_not_convert");
  } else {
    fields.unsupported("quant_method", method, "modelopt, compressed-tensors, fp8, mxfp4");
  }
  out.kv_cache = kv_cache_scheme(object);
  return out;
}

// hf_quant_config.json.
Quantization read_sidecar(const bj::object& document, std::string_view what, ProblemList& problems) {
  Quantization out{
      .method = QuantMethod::modelopt, .algorithms = {}, .modules = {}, .excluded = {}, .producer = {}};
  FieldReader root(document, what, "", problems);
  const bj::object* object = root.optional_object("quantization");
  if (object == nullptr) {
    problems.add("missing", "quantization");
    return out;
  }
  FieldReader fields(*object, what, "quantization.", problems);
  read_modelopt(fields, what, problems, out);
  out.excluded = fields.optional_texts("exclude_modules");
  out.kv_cache = kv_cache_from_name(fields.optional_text("kv_cache_quant_algo").value_or(""));
  out.producer = read_producer(root, what, problems);
  return out;
}

std::string names_of(const Quantization& quantization) {
  std::string text(quant_method_name(quantization.method));
  for (const QuantAlgorithm algorithm : quantization.algorithms)
    text += " " + std::string(quant_algorithm_name(algorithm));
  return text;
}

// A mixed-precision description without its list agrees with every list.
bool is_bare_mixed(const Quantization& quantization) {
  return quantization.algorithms == std::vector{QuantAlgorithm::mixed_precision};
}

bool same_algorithms(const Quantization& a, const Quantization& b) {
  if (a.method == b.method && (is_bare_mixed(a) || is_bare_mixed(b))) return true;
  return a.method == b.method && a.modules == b.modules &&
         std::is_permutation(a.algorithms.begin(), a.algorithms.end(), b.algorithms.begin(),
                             b.algorithms.end());
}

}  // namespace

std::string_view quant_method_name(QuantMethod method) {
  switch (method) {
    case QuantMethod::none: return "none";
    case QuantMethod::modelopt: return "modelopt";
    case QuantMethod::compressed_tensors: return "compressed-tensors";
    case QuantMethod::fp8: return "fp8";
    case QuantMethod::mxfp4: return "mxfp4";
  }
  return "unknown";
}

std::string_view quant_algorithm_name(QuantAlgorithm algorithm) {
  switch (algorithm) {
    case QuantAlgorithm::fp8: return "FP8";
    case QuantAlgorithm::mxfp8: return "MXFP8";
    case QuantAlgorithm::nvfp4: return "NVFP4";
    case QuantAlgorithm::w4a16_nvfp4: return "W4A16_NVFP4";
    case QuantAlgorithm::mxfp4: return "MXFP4";
    case QuantAlgorithm::mixed_precision: return "MIXED_PRECISION";
  }
  return "unknown";
}

std::string_view kv_cache_name(KvCacheScheme scheme) {
  switch (scheme) {
    case KvCacheScheme::none: return "none";
    case KvCacheScheme::fp8: return "FP8";
    case KvCacheScheme::nvfp4: return "NVFP4";
    case KvCacheScheme::other: return "another format";
  }
  return "unknown";
}

bool Quantization::made_for_fp4_activations() const {
  return std::find(algorithms.begin(), algorithms.end(), QuantAlgorithm::nvfp4) != algorithms.end();
}

Quantization parse_quantization(std::string_view config_text, std::string_view hf_quant_text,
                                std::string_view what) {
  ProblemList problems;
  std::optional<Quantization> inside;
  const bj::value config = json::parse(config_text, what, kLimits);
  const bj::object* root = config.if_object();
  if (root == nullptr) fail(Code::bad_checkpoint, "{}: is not a JSON object", what);
  // A text-only export of a nested config may keep it one level down.
  for (const bj::object* place :
       {root, root->contains("text_config") ? root->at("text_config").if_object() : nullptr}) {
    if (place == nullptr || inside) continue;
    const bj::value* entry = place->if_contains("quantization_config");
    if (entry == nullptr || entry->is_null()) continue;
    if (!entry->is_object()) fail(Code::bad_checkpoint, "{}: quantization_config is not an object", what);
    inside = read_inline(entry->get_object(), what, problems);
  }
  std::optional<Quantization> beside;
  if (!hf_quant_text.empty()) {
    const bj::value document = json::parse(hf_quant_text, "hf_quant_config.json", kLimits);
    if (!document.is_object()) fail(Code::bad_checkpoint, "hf_quant_config.json: is not a JSON object");
    beside = read_sidecar(document.get_object(), "hf_quant_config.json", problems);
  }
  problems.fail_if_any(what);
  if (inside && beside && !same_algorithms(*inside, *beside))
    fail_with_hint(Code::bad_checkpoint, "one of the files is of another release; download the model again",
                   "{} says {}, hf_quant_config.json says {}", what, names_of(*inside), names_of(*beside));
  return beside ? *beside : inside ? *inside : Quantization{};
}

Quantization read_quantization(const std::filesystem::path& folder) {
  const std::filesystem::path config = folder / "config.json";
  const std::filesystem::path sidecar = folder / "hf_quant_config.json";
  std::error_code ignored;
  const bool has_sidecar = std::filesystem::exists(sidecar, ignored);
  return parse_quantization(json::read_text_file(config, kLimits.text_bytes_max),
                            has_sidecar ? json::read_text_file(sidecar, kLimits.text_bytes_max) : "",
                            config.string());
}

}  // namespace fourfold::checkpoint
