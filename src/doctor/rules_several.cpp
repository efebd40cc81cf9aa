// Rules about several GPUs in one machine.
#include <array>

#include "doctor/pages.h"
#include "doctor/rules.h"

namespace fourfold::doctor {
namespace {

constexpr std::array kRules{
    Rule{.id = "p2p-wrong-values",
         .area = Area::several,
         .applies = "gpus > 1 and (known(peers.values) or peers.p2p == 'ok')",
         .fault = "peers.values == 'wrong'",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "a copy from GPU to GPU came back with other values ({peers.values_detail})",
         .expected = "the bytes that were sent",
         .cost = "silent garbage: NaN, '!!!!', answers that drift, with no error",
         .advice = "NCCL_P2P_DISABLE=1 at once (costs 13 to 42 % of speed). Then: IOMMU off or iommu=pt, ACS "
                   "off in the BIOS, and run doctor again.",
         .evidence = "copied and compared now; the same in the field (club-3090#922)",
         .link = "https://github.com/noonghunna/club-3090/issues/922"},
    Rule{.id = "p2p-off",
         .area = Area::several,
         .applies = "gpus > 1",
         .fault = "peers.p2p != 'ok'",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "the driver refuses peer-to-peer between GPUs: {peers.p2p} ({peers.matrix})",
         .expected = "ok for every pair",
         .cost = "P2P is worth 13 to 42 % of the speed of a model on four cards",
         .advice = "Driver 595 or newer with nvidia-open, Resizable BAR on, IOMMU off or iommu=pt. GeForce "
                   "cards have no P2P in NVIDIA's driver.",
         .evidence =
             "sm120-moe-bench, four cards: P2P on against off, 1 to 8 users; NVML's own answer for each pair",
         .link = pages::kP2p},
    Rule{.id = "p2p-page-faults",
         .area = Area::several,
         .applies = "gpus > 1 and peers.p2p == 'ok'",
         .fault = "cpu_amd and iommu_translates and not (known(env.NCCL_P2P_DISABLE) and "
                  "env.NCCL_P2P_DISABLE == 1)",
         .level = Level::broken,
         .sure = Sure::reported,
         .found = "P2P is on while AMD-Vi translates addresses ({cpu})",
         .expected = "iommu=pt, or IOMMU off in the BIOS",
         .cost = "IO page faults: NCCL hangs at its start, or GPU memory faults under load",
         .advice = "Add iommu=pt to the kernel's command line and restart. Until then NCCL_P2P_DISABLE=1, "
                   "which costs 13 to 42 %.",
         .evidence = "nccl#1637, nccl#2079, vllm#33041: AMD hosts with the IOMMU translating",
         .link = "https://github.com/NVIDIA/nccl/issues/1637"},
    Rule{.id = "acs",
         .area = Area::several,
         .applies = "gpus > 1 and not wsl",
         .fault = "peers.acs",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "PCIe bridges above the GPUs redirect peer traffic to the root (ACS)",
         .expected = "ACS off on those bridges",
         .cost = "GPU to GPU copies climb to the CPU and back: less bandwidth, more latency; NCCL may hang",
         .advice = "ACS off in the BIOS; or setpci -v -s BRIDGE ECAP_ACS+0x6.w=0000 at every start.",
         .evidence = "NCCL's troubleshooting guide; the bridges' own registers",
         .link = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
    Rule{.id = "peers-far",
         .area = Area::several,
         .applies = "gpus > 1 and not (known(peers.nvlink) and peers.nvlink)",
         .fault = "peers.distance == 'system'",
         .level = Level::slow,
         .sure = Sure::likely,
         .found = "two GPUs sit on different sockets",
         .expected = "all below one root complex, best below one PCIe switch",
         .cost = "all-reduce crosses the socket link",
         .advice =
             "Move the cards to slots of one CPU; otherwise split by pipeline (PP=2) across the sockets.",
         .evidence = "NVML's topology; rtx6kpro: what crosses the link between sockets",
         .link = pages::kTopology},
    Rule{.id = "peers-power",
         .area = Area::several,
         .applies = "gpus > 1",
         .fault = "peers.power_least_w < 0.9 * peers.power_most_w",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "power limits from {peers.power_least_w} to {peers.power_most_w} W",
         .expected = "one limit",
         .cost = "with tensor parallelism every step waits for the slowest card",
         .advice = "Set one limit on all: nvidia-smi -pl WATTS.",
         .evidence = "sm120-moe-bench: 300 W and 600 W variants in one machine, 2,280 beside 2,840 MHz",
         .link = pages::kMixedCards},
    Rule{.id = "peers-mixed",
         .area = Area::several,
         .applies = "gpus > 1",
         .fault = "not peers.same",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "different GPUs in one machine",
         .expected = "equal ones, for tensor parallelism",
         .cost = "every step waits for the slowest, and the smallest memory counts for all",
         .advice = "Choose equal cards with CUDA_VISIBLE_DEVICES.",
         .evidence = "tensor parallelism cuts every matrix into equal shares"},
    Rule{.id = "all-reduce",
         .area = Area::several,
         .applies = "gpus > 1 and not (known(peers.nvlink) and peers.nvlink)",
         .fault = "gpus > 1",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "{gpus} GPUs without NVLink: two all-reduces a layer over PCIe, about {0.014 * 2 * 60} ms "
                  "a step of a model with 60 layers",
         .expected = "about 14 us each with NCCL, 8.4 us with a write-based one (medians of one owner)",
         .cost = "often the largest part of a step: 69 % of GPU time in one profile of four cards",
         .advice = "An engine with a one-shot all-reduce (b12x images, vLLM custom all-reduce over P2P); "
                   "fewer, larger cards where the model fits.",
         .evidence = "sm120-moe-bench: 68.8 % of GPU time (eager mode); its BUGS_FOUND.md has the medians",
         .link = pages::kProfile},
    Rule{.id = "hmm",
         .area = Area::several,
         .applies = "gpus > 1 and not wsl",
         .fault = "known(hmm) and hmm",
         .level = Level::note,
         .sure = Sure::reported,
         .found = "the driver's heterogeneous memory management (HMM) is on",
         .expected = "uvm_disable_hmm=1 where P2P hangs",
         .cost = "none by itself; owners of several cards name it among the causes of hangs",
         .advice =
             "Only if NCCL hangs: options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d, then restart.",
         .evidence = "rtx6kpro, NCCL P2P lockups; single source",
         .link = pages::kLockups},
};

}  // namespace

std::span<const Rule> several_rules() { return kRules; }

}  // namespace fourfold::doctor
