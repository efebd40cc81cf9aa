#include "doctor/rules.h"

#include <array>

namespace fourfold::doctor {
namespace {

// clang-format off
constexpr std::array kFacts = std::to_array<std::string_view>({
    "gpus", "pci.nvidia", "pci.drivers", "first.name", "first.cc", "first.smem",
    // each GPU
    "gpu.index", "gpu.name", "gpu.product", "gpu.cc", "gpu.cc_number", "gpu.planned", "gpu.fp4", "gpu.smem",
    "gpu.smem_planned", "gpu.memory_mb", "gpu.memory_used_mb", "gpu.bar1_mb", "gpu.ecc", "gpu.mig",
    "gpu.persistence", "gpu.power_limit_w", "gpu.power_default_w", "gpu.power_max_w", "gpu.power_draw_w",
    "gpu.sm_mhz", "gpu.sm_max_mhz", "gpu.memory_mhz", "gpu.memory_max_mhz", "gpu.throttle",
    "gpu.temperature_c", "gpu.temperature_slow_c", "gpu.pcie_gen", "gpu.pcie_gen_slot", "gpu.pcie_gen_chip",
    "gpu.pcie_lanes", "gpu.pcie_lanes_max", "gpu.processes", "gpu.processes_mb", "gpu.utilization",
    "gpu.pci", "gpu.node", "gpu.near", "gpu.iommu", "gpu.gb_per_s", "gpu.measured_gb_per_s",
    // driver and toolkit
    "driver.version", "driver.module", "driver.major", "driver.open", "driver.error", "driver.cuda",
    "driver.cuda_major", "toolkit.found", "toolkit.version", "toolkit.code", "toolkit.major",
    // platform
    "wsl", "virtual", "container", "board", "cpu", "cpu_amd", "threads", "cores", "cores_per_gpu",
    "cpu_gb_per_s", "ram_gb",
    "nodes", "governor", "governor_driver", "energy_preference", "huge_pages", "shm_mb", "memlock_mb",
    "iommu", "iommu_pt", "iommu_translates", "aspm", "hmm",
    // several GPUs
    "peers.p2p", "peers.matrix", "peers.distance", "peers.nvlink", "peers.same", "peers.power_least_w",
    "peers.power_most_w", "peers.acs", "peers.values", "peers.values_detail",
    // servers that run; env.NAME is any variable that source.cpp knows
    "servers", "servers.marlin",
    // --scan
    "scan.given", "scan.files", "scan.objects", "scan.images", "scan.ptx", "scan.sm12x", "scan.sm120",
    "scan.sm120a", "scan.sm120f", "scan.sm121", "scan.sm121a", "scan.sm121f", "scan.only_120a", "scan.only_120a_file",
    "scan.plain_fp4", "scan.plain_fp4_file", "scan.suffix_unknown", "scan.cached_before_fix",
    "scan.cached_before_fix_file", "scan.cached_older", "scan.unreadable",
    // --log
    "log.given", "log.lines", "log.bytes", "log.kernel", "log.tma_ws_init", "log.skipping_tactic",
    "log.skipped_tactics", "log.gemm_smem", "log.launch_smem", "log.launch_smem_bytes", "log.marlin",
    "log.no_native_fp4", "log.no_backend", "log.arch_conditional", "log.tma_descriptor", "log.not_building",
    "log.config_missing", "log.no_valid_tactics", "log.ptxas_121a", "log.accept_length", "log.drafts",
    "log.tok_per_s",
    // --model and --measured
    "model.given", "model.name", "model.file_gb", "model.matrix_gb", "model.token_gb",
    "model.routed_share", "model.wide_share", "model.mtp", "model.mtp_even", "model.floor", "model.floor_1",
    "model.floor_2", "model.floor_4", "model.gpu_memory_gb", "model.measured", "model.published",
    "model.published_how", "model.disk_gb_per_s", "model.file_system",
    // --url, each server
    "urls", "url.name", "url.ok", "url.error", "url.model", "url.tok_per_s", "url.tok_per_s_thinking",
    "url.first_token_ms", "url.other_tok_per_s", "url.counted",
    // this program
    "ours.cuda", "ours.rows", "ours.refused",
});
// clang-format on

}  // namespace

std::string markdown_link(const Rule& rule) {
  return rule.link.empty() ? std::string{} : " ([link](" + std::string(rule.link) + "))";
}

std::string_view level_name(Level level) {
  switch (level) {
    case Level::note: return "note";
    case Level::slow: return "slow";
    case Level::broken: return "broken";
  }
  return "";
}

std::string_view sure_name(Sure sure) {
  switch (sure) {
    case Sure::certain: return "certain";
    case Sure::likely: return "likely";
    case Sure::reported: return "reported";
  }
  return "";
}

std::string_view area_name(Area area) {
  switch (area) {
    case Area::gpu: return "GPU";
    case Area::driver: return "driver and toolkit";
    case Area::kernels: return "installed kernels";
    case Area::platform: return "platform";
    case Area::several: return "several GPUs";
    case Area::environment: return "environment";
    case Area::log: return "logs";
    case Area::model: return "model";
    case Area::live: return "live servers";
    case Area::ours: return "Fourfold itself";
  }
  return "";
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> list;
    for (const auto& part : {gpu_rules(), driver_rules(), platform_rules(), several_rules(),
                             environment_rules(), log_rules(), model_rules()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

std::span<const std::string_view> known_facts() { return kFacts; }

}  // namespace fourfold::doctor
