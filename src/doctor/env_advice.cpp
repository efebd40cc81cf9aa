#include "doctor/env_advice.h"

#include <algorithm>
#include <array>

#include "doctor/expression.h"

namespace fourfold::doctor {
namespace {

// Where a line belongs: the shell's environment (docker takes it as -e), or the command itself.
enum class Place { setting, unset, command };

struct AdviceRule {
  Purpose purpose;
  Place place;
  std::string_view when;  // unknown counts as no
  std::string_view text;
  std::string_view reason;
};

constexpr Purpose kVllm = Purpose::vllm, kOurs = Purpose::fourfold, kDocker = Purpose::docker;

// want.gpus is how many are to be used, want.threads the cores each of them gets.
constexpr std::array kAdvice{
    AdviceRule{kVllm, Place::setting, "gpus > 0", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
               "GPUs are numbered as nvidia-smi numbers them"},
    AdviceRule{kVllm, Place::setting, "gpus > want.gpus and want.gpus > 0",
               "CUDA_VISIBLE_DEVICES={want.list}", "{want.gpus} of {gpus} GPUs"},
    AdviceRule{kVllm, Place::setting, "want.gpus > 1 and known(cores)", "OMP_NUM_THREADS={want.threads}",
               "{cores} cores for {want.gpus} workers; each would start a pool for all of them"},
    AdviceRule{kVllm, Place::setting, "want.gpus > 1", "VLLM_WORKER_MULTIPROC_METHOD=spawn",
               "a forked worker cannot use CUDA once its parent did"},
    AdviceRule{
        kVllm, Place::setting, "want.gpus > 1 and cpu_amd and iommu_translates", "NCCL_P2P_DISABLE=1",
        "AMD-Vi translates: P2P may fault. Costs 13 to 42 %; boot with iommu=pt and take this line out"},
    AdviceRule{kVllm, Place::setting,
               "want.gpus > 1 and peers.p2p == 'ok' and not (cpu_amd and iommu_translates) and "
               "(peers.distance == 'hostbridge' or peers.distance == 'node' or peers.distance == 'system')",
               "NCCL_P2P_LEVEL=SYS", "the GPUs meet at the CPU ({peers.distance}), and P2P works across it"},
    AdviceRule{kVllm, Place::setting, "gpus > 0 and gpu.0.cc_number == 12", "TORCH_CUDA_ARCH_LIST=12.0f",
               "for whatever is compiled: without the suffix FP4 kernels are left out or empty"},
    AdviceRule{kVllm, Place::setting, "gpus > 0 and gpu.0.cc_number == 12.1", "TORCH_CUDA_ARCH_LIST=12.1f",
               "for whatever is compiled: without the suffix FP4 kernels are left out or empty"},
    AdviceRule{kVllm, Place::unset, "known(env.CUDA_LAUNCH_BLOCKING)", "CUDA_LAUNCH_BLOCKING",
               "it makes every launch wait"},
    AdviceRule{kVllm, Place::unset, "known(env.CUDA_FORCE_PTX_JIT)", "CUDA_FORCE_PTX_JIT",
               "it throws the prebuilt kernels away"},
    AdviceRule{kVllm, Place::unset, "known(env.VLLM_MOE_FORCE_MARLIN)", "VLLM_MOE_FORCE_MARLIN",
               "it forces 16-bit activations; prompts and many users are slower"},
    AdviceRule{kVllm, Place::unset,
               "known(env.NCCL_P2P_DISABLE) and peers.p2p == 'ok' and not (cpu_amd and iommu_translates)",
               "NCCL_P2P_DISABLE", "P2P works here and is worth 13 to 42 %"},
    AdviceRule{kVllm, Place::unset, "known(env.CUDA_DEVICE_MAX_CONNECTIONS)", "CUDA_DEVICE_MAX_CONNECTIONS",
               "a setting of training frameworks"},
    AdviceRule{kVllm, Place::command, "gpus > 0 and gpu.0.cc_number >= 12",
               "vllm serve MODEL --tensor-parallel-size {want.gpus} --moe-backend flashinfer_b12x",
               "b12x is the fastest public NVFP4 MoE on this chip and is never chosen by itself; if it "
               "fails, leave --moe-backend out"},
    AdviceRule{kVllm, Place::command, "gpus > 0 and gpu.0.cc_number < 12",
               "vllm serve MODEL --tensor-parallel-size {want.gpus}",
               "the engine's own choice of kernels is right on this chip"},
    AdviceRule{kVllm, Place::command, "gpus == 0", "",
               "no GPU answers here; --for fourfold has the line for the CPU"},
    AdviceRule{kDocker, Place::command, "gpus == 0", "",
               "no GPU answers here; --for fourfold has the line for the CPU"},
    AdviceRule{kDocker, Place::command, "want.gpus > 0",
               "docker run --gpus all --ipc=host --ulimit memlock=-1 SETTINGS IMAGE",
               "--ipc=host: Docker's own /dev/shm has 64 MB, NCCL needs more; memlock: pinned buffers"},
    AdviceRule{kOurs, Place::command, "want.gpus > 0 and (gpu.0.cc_number == 9 or gpu.0.cc_number >= 12)",
               "fourfold run MODEL --backend cuda -p 'Hello'",
               "our kernels have rows for this GPU; one GPU a model"},
    AdviceRule{kOurs, Place::command, "want.gpus == 0 or not (gpu.0.cc_number == 9 or gpu.0.cc_number >= 12)",
               "fourfold run MODEL --backend cpu -p 'Hello'", "no GPU here that our kernels have rows for"},
};

std::vector<AdviceLine> lines_for(const Facts& facts, Purpose purpose, Place place) {
  const Scope scope{facts};
  std::vector<AdviceLine> lines;
  for (const AdviceRule& rule : kAdvice)
    if (rule.purpose == purpose && rule.place == place && evaluate(rule.when, scope) == Value(true))
      lines.push_back({fill(rule.text, scope), fill(rule.reason, scope)});
  return lines;
}

std::string device_list(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + std::to_string(i);
  return list;
}

}  // namespace

std::vector<AdviceLine> env_advice(const Facts& known, Purpose purpose, int gpus) {
  Facts facts = known;
  facts.set("want.gpus", gpus);
  facts.set("want.list", device_list(gpus));
  const int cores = static_cast<int>(facts.number_or("cores", 1));
  facts.set("want.threads", std::max(cores / std::max(gpus, 1), 1));
  // A container gets vLLM's settings as -e; ours needs none.
  const Purpose settings = purpose == Purpose::docker ? Purpose::vllm : purpose;
  std::vector<AdviceLine> lines;
  std::string options;
  for (const AdviceLine& line : lines_for(facts, settings, Place::setting)) {
    options += (options.empty() ? "-e " : " -e ") + line.text;
    lines.push_back({purpose == Purpose::docker ? "" : "export " + line.text,
                     purpose == Purpose::docker ? line.text + ": " + line.reason : line.reason});
  }
  if (purpose != Purpose::docker)
    for (const AdviceLine& line : lines_for(facts, settings, Place::unset))
      lines.push_back({"unset " + line.text, line.reason});
  for (AdviceLine line : lines_for(facts, purpose, Place::command)) {
    if (const auto at = line.text.find("SETTINGS "); at != std::string::npos)
      line.text.replace(at, 9, options.empty() ? "" : options + " ");
    lines.push_back(line);
  }
  return lines;
}

std::string advice_text(const std::vector<AdviceLine>& lines) {
  std::string out;
  for (const AdviceLine& line : lines)
    out += "# " + line.reason + "\n" + (line.text.empty() ? "" : line.text + "\n");
  return out;
}

}  // namespace fourfold::doctor
