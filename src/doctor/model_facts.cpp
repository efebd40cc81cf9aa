#include "doctor/model_facts.h"

#include <cmath>

#include "base/format.h"
#include "doctor/pages.h"

namespace fourfold::doctor {
namespace {

constexpr double kGb = 1e9;
constexpr double kUsableShare = 0.92;

double sum_over_gpus(const Facts& facts, const char* name) {
  double sum = 0;
  for (int i = 0; i < static_cast<int>(facts.number_or("gpus", 0)); ++i) {
    const double value = facts.number_or(indexed("gpu", i, name), -1);
    if (value < 0) return -1;  // one that is not known makes the sum unknown
    sum += value;
  }
  return sum;
}

std::string rounded(double number) { return text_of(std::round(number)); }

}  // namespace

const std::vector<Published>& published_results() {
  static const std::vector<Published> all{
      {"397B", "RTX PRO 6000 Blackwell Workstation", 4, 108.1, "SGLang, b12x, one-shot all-reduce",
       pages::kQwen397b},
      {"122B", "RTX PRO 6000 Blackwell Workstation", 1, 86, "vLLM, FlashInfer CUTLASS 0.6.6",
       "https://github.com/flashinfer-ai/flashinfer/issues/2992"},
      {"122B", "DGX Spark GB10", 1, 26, "vLLM, FlashInfer CUTLASS",
       "https://github.com/NVIDIA/cutlass/issues/3120"},
      {"35B", "RTX 5090", 1, 257.3, "vLLM 0.24, NVFP4", "https://github.com/noonghunna/club-3090/issues/612"},
      {"35B", "RTX 5090", 2, 274.1, "vLLM, TP2", "https://github.com/noonghunna/club-3090/issues/858"},
  };
  return all;
}

double break_even(const ModelBytes& bytes, int drafts) {
  return bytes.step_bytes[static_cast<std::size_t>(drafts)] / bytes.token_bytes;
}

void set_model_facts(const ModelBytes& bytes, std::optional<double> measured, Facts& facts) {
  facts.set("model.given", true);
  facts.set("model.name", bytes.name);
  facts.set("model.file_gb", bytes.file_bytes / kGb);
  facts.set("model.matrix_gb", bytes.matrix_bytes / kGb);
  facts.set("model.token_gb", bytes.token_bytes / kGb);
  facts.set("model.routed_share", bytes.routed_bytes / bytes.token_bytes);
  facts.set("model.wide_share", bytes.wide_bytes / bytes.token_bytes);
  facts.set("model.mtp", bytes.has_drafts());
  const int drafts = static_cast<int>(facts.number_or("log.drafts", 0));
  if (drafts > 0 && drafts <= kDraftsMax && bytes.has_drafts())
    facts.set("model.mtp_even", break_even(bytes, drafts));
  if (const double memory = sum_over_gpus(facts, "memory_mb"); memory > 0)
    facts.set("model.gpu_memory_gb", memory * (1 << 20) / kGb);
  const double gb_per_s = sum_over_gpus(facts, "gb_per_s");
  if (gb_per_s > 0) {
    facts.set("model.floor", std::round(gb_per_s * kGb / bytes.token_bytes));
    for (const int count : {1, 2, 4})
      facts.set("model.floor_" + std::to_string(count),
                std::round(count * facts.number_or("gpu.0.gb_per_s", 0) * kGb / bytes.token_bytes));
  }
  // Without a GPU the CPU's memory is the machine's.
  if (const double cpu = facts.number_or("cpu_gb_per_s", 0); cpu > 0 && facts.number_or("gpus", 0) == 0)
    facts.set("model.floor", cpu * kGb / bytes.token_bytes);
  if (measured) facts.set("model.measured", *measured);
  for (const Published& result : published_results()) {
    if (result.size != bytes.size || result.gpus != static_cast<int>(facts.number_or("gpus", 0)) ||
        facts.text_or("gpu.0.product", "") != result.product)
      continue;
    facts.set("model.published", result.tok_per_s);
    facts.set("model.published_how", fourfold::format("{}, {}", result.how, result.source));
    break;
  }
}

std::vector<std::string> about_model(const ModelBytes& bytes, const Facts& facts) {
  std::vector<std::string> lines{fourfold::format(
      "model {}: {} GB of weights; a token reads {} GB, {} % of it routed experts, {} % 16-bit matrices",
      bytes.name, text_of(bytes.matrix_bytes / kGb), text_of(bytes.token_bytes / kGb),
      rounded(100 * bytes.routed_bytes / bytes.token_bytes),
      rounded(100 * bytes.wide_bytes / bytes.token_bytes))};
  const double each = facts.number_or("gpu.0.gb_per_s", 0);
  const double memory = facts.number_or("gpu.0.memory_mb", 0) * (1 << 20);
  if (each > 0) {
    std::string floors = "floor, one user, no drafts:";
    for (const int count : {1, 2, 4}) {
      floors += fourfold::format("{} {} x {} tok/s", count == 1 ? "" : ",", count,
                                 rounded(count * each * kGb / bytes.token_bytes));
      if (bytes.matrix_bytes > kUsableShare * memory * count) floors += " (does not fit)";
    }
    lines.push_back(floors);
  }
  if (bytes.has_drafts()) {
    std::string drafts = "drafts (MTP) pay above";
    for (const int count : {1, 2, 3, 5})
      drafts += fourfold::format("{} {} tokens a step with {}", count == 1 ? "" : ",",
                                 text_of(std::round(break_even(bytes, count) * 100) / 100), count);
    lines.push_back(drafts);
  }
  return lines;
}

}  // namespace fourfold::doctor
