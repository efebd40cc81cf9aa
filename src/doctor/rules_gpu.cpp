// Rules about each GPU.
#include <array>

#include "doctor/rules.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kFieldPower = "https://github.com/brandonmmusic-max/sm120-moe-bench";
constexpr std::string_view kWiki = "https://github.com/local-inference-lab/rtx6kpro";
constexpr std::string_view kNvml = "https://docs.nvidia.com/deploy/nvml-api/";

constexpr std::array kRules{
    Rule{.id = "no-gpu",
         .area = Area::gpu,
         .fault = "gpus == 0 and pci.nvidia == 0 and not wsl",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "no NVIDIA GPU in this machine",
         .expected = "an NVIDIA GPU of compute capability 9.0, 12.0 or 12.1",
         .cost = "models run on the CPU, as fast as its memory reads",
         .advice = "Nothing to mend. fourfold run works on the CPU; checks of GPUs were left out.",
         .evidence = "the PCI bus lists no display device of NVIDIA",
         .link = "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci"},
    Rule{.id = "gpu-without-driver",
         .area = Area::gpu,
         .fault =
             "gpus == 0 and pci.nvidia > 0 and not (pci.drivers contains 'nouveau') and "
             "not (known(driver.open) and not driver.open) and driver.error != 'driver and library differ'",
         .level = Level::broken,
         .sure = Sure::certain,
         .found =
             "{pci.nvidia} NVIDIA device(s) on the PCI bus, none usable (kernel driver: {pci.drivers}; NVML: "
             "{driver.error})",
         .expected = "the kernel module nvidia, and libnvidia-ml.so.1 of the same version",
         .cost = "no GPU work at all",
         .advice =
             "Install nvidia-open from NVIDIA's CUDA repository and restart. In a container: start it with "
             "--gpus all.",
         .evidence = "NVML is the driver's own library; without it nothing can launch a kernel",
         .link = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"},
    Rule{.id = "gpu-nouveau",
         .area = Area::gpu,
         .fault = "gpus == 0 and pci.drivers contains 'nouveau'",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "the GPU is driven by nouveau",
         .expected = "nvidia-open",
         .cost = "CUDA does not exist under nouveau",
         .advice = "Install nvidia-open from NVIDIA's CUDA repository; it keeps nouveau out. Restart.",
         .evidence = "nouveau has no CUDA",
         .link = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"},
    Rule{.id = "gpu-not-planned",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "not gpu.planned",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "compute capability {gpu.cc}, which no table of ours lists",
         .expected = "9.0, 12.0 or 12.1 for our kernels; 8.0, 8.9, 10.0 and 10.3 are known to the planner",
         .cost = "our kernels refuse this GPU; checks of shared memory are left out",
         .advice =
             "fourfold plan lists what is planned. On this GPU use another engine, or fourfold on the CPU.",
         .evidence = "plan/arch.h; an architecture that is not listed has no row",
         .link = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"},
    Rule{.id = "gpu-shared-memory",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "gpu.planned",
         .fault = "gpu.smem != gpu.smem_planned",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "a block may use {gpu.smem} bytes of shared memory",
         .expected = "{gpu.smem_planned} bytes on compute capability {gpu.cc}",
         .cost = "kernels planned for the larger number do not launch",
         .advice = "Look for MIG, MPS limits or a virtual GPU; report it with --record if there is none.",
         .evidence = "CUDA Programming Guide, compute capabilities; ptxas refuses more",
         .link = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"},
    Rule{.id = "gpu-no-fp4",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "gpu.planned",
         .fault = "not gpu.fp4",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "{gpu.name} has no FP4 instruction",
         .expected = "one, on compute capability 10.x and 12.x",
         .cost = "NVFP4 weights are decoded to bf16 in registers (W4A16): the same bytes are read, prompts "
                 "are slower",
         .advice =
             "Nothing to mend; W4A16 is the right path here. A warning about Marlin is true on this GPU.",
         .evidence = "ptxas 13.0 accepts the block-scaled FP4 instruction for sm_120a/f and sm_121a/f only",
         .link = "https://docs.nvidia.com/cuda/parallel-thread-execution/"},
    Rule{.id = "gpu-memory-taken",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.memory_used_mb > 1024 and gpu.memory_used_mb > gpu.memory_mb / 10",
         .level = Level::slow,
         .sure = Sure::certain,
         .found =
             "{gpu.memory_used_mb} of {gpu.memory_mb} MB are in use ({gpu.processes} compute process(es))",
         .expected = "less than a tenth, before a model is loaded",
         .cost = "less room for weights and caches; servers fail at start or keep fewer users",
         .advice = "nvidia-smi lists the processes; end what is left over from an earlier server, move the "
                   "desktop to "
                   "another GPU.",
         .evidence = "read from the driver now",
         .link = kNvml},
    Rule{.id = "gpu-busy",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.utilization > 20",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "the GPU is {gpu.utilization} % busy with other work right now",
         .expected = "0 while doctor runs",
         .cost = "measurements and servers share it",
         .advice = "Stop the other work before measuring; nvidia-smi names it. A running server of yours is "
                   "no fault.",
         .evidence = "read from the driver now",
         .link = kNvml},
    Rule{.id = "gpu-ecc",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "known(gpu.ecc) and gpu.cc_number == 12",
         .fault = "gpu.ecc",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "ECC is on",
         .expected = "a choice: GDDR7 keeps its check bits in the same memory",
         .cost = "some capacity and bandwidth; how much on this card we have not measured",
         .advice = "Keep it for servers that must not err. To measure its price: nvidia-smi -e 0, restart, "
                   "run doctor "
                   "again.",
         .evidence =
             "NVIDIA documents ECC on GDDR cards as taking memory; no SM120 measurement is known to us",
         .link = kNvml},
    Rule{.id = "power-cap",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.power_limit_w < 0.8 * gpu.power_default_w",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "power limit {gpu.power_limit_w} W; the card was made for {gpu.power_default_w} W",
         .expected = "the factory limit, unless the cap is meant",
         .cost = "prompts slow down first (they are arithmetic); decoding of one user, which waits for "
                 "memory, loses "
                 "least",
         .advice = "nvidia-smi -i {gpu.index} -pl {gpu.power_default_w}; if the cap is meant (heat, power "
                   "supply), say "
                   "so beside every number you publish.",
         .evidence =
             "published numbers of this community differ by power limit; mixed 300 W and 600 W cards are a "
             "known trap",
         .link = kFieldPower},
    Rule{.id = "throttle-heat",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.throttle contains 'thermal' or gpu.temperature_c >= gpu.temperature_slow_c - 2",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "{gpu.temperature_c} degrees (slows down at {gpu.temperature_slow_c}); throttle reasons: "
                  "{gpu.throttle}",
         .expected = "no thermal reason",
         .cost = "clocks fall while it lasts",
         .advice = "More air: fans, the slot beside it, the room. Stacked open-air cards heat each other.",
         .evidence = "the driver's own throttle reasons",
         .link = kNvml},
    Rule{.id = "throttle-hardware",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.throttle contains 'power_brake' or gpu.throttle contains 'hardware_slowdown'",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "the board itself slows the GPU down ({gpu.throttle})",
         .expected = "no hardware reason",
         .cost = "clocks at a half or less",
         .advice = "Check the power connector and the supply (one cable a plug, no adapters in series), then "
                   "the slot's "
                   "power brake.",
         .evidence =
             "the driver's own throttle reasons; power supplies with two grounds drop cards off the bus",
         .link = kWiki},
    Rule{.id = "clock-cap",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "gpu.throttle contains 'application_clocks'",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "somebody set application clocks ({gpu.sm_mhz} of {gpu.sm_max_mhz} MHz)",
         .expected = "no cap on clocks",
         .cost = "prompts slow down with the clock",
         .advice = "nvidia-smi -i {gpu.index} -rac, and -rgc for locked clocks.",
         .evidence = "the driver's own throttle reasons",
         .link = kNvml},
    Rule{
        .id = "pcie-lanes",
        .area = Area::gpu,
        .each = "gpu",
        .fault = "gpu.pcie_lanes < gpu.pcie_lanes_max",
        .level = Level::slow,
        .sure = Sure::certain,
        .found = "the card runs on {gpu.pcie_lanes} PCIe lanes of {gpu.pcie_lanes_max}",
        .expected = "{gpu.pcie_lanes_max}",
        .cost =
            "one GPU: loading a model takes longer, answers do not; several GPUs: all-reduce and P2P at "
            "{gpu.pcie_lanes / gpu.pcie_lanes_max} of their speed, which is often the largest part of a step",
        .advice =
            "Reseat the card; look for a second card or an M.2 drive that shares its lanes; see the board's "
            "manual for x16 slots and bifurcation.",
        .evidence =
            "x4 links after reseating are in the field reports; the all-reduce share is 69 % of GPU time in "
            "one published profile",
        .link = kFieldPower},
    Rule{
        .id = "pcie-generation",
        .area = Area::gpu,
        .each = "gpu",
        .fault = "gpu.pcie_gen_slot < gpu.pcie_gen_chip",
        .level = Level::note,
        .sure = Sure::certain,
        .found = "the slot gives PCIe generation {gpu.pcie_gen_slot}, the card could use {gpu.pcie_gen_chip}",
        .expected =
            "generation {gpu.pcie_gen_chip} (an idle card shows less, so the slot's best is compared)",
        .cost = "half the transfer speed a generation: loading, P2P and offloading; not one GPU's answers",
        .advice = "Look for a BIOS setting that forces a generation, a riser cable of an older one, or "
                  "another slot.",
        .evidence = "PCI Express doubles its rate with each generation",
        .link = kWiki},
    Rule{.id = "resizable-bar",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "not wsl and known(gpu.pcie_gen)",
         .fault = "gpu.bar1_mb < gpu.memory_mb / 2",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "the CPU sees {gpu.bar1_mb} MB of the card's {gpu.memory_mb} MB (BAR1)",
         .expected = "all of it (Resizable BAR)",
         .cost = "peer-to-peer between GPUs is not possible with a small window; loading may be slower",
         .advice = "BIOS: Above 4G Decoding and Resizable BAR on, CSM off.",
         .evidence = "P2P maps the peer's memory through BAR1",
         .link = kWiki},
    Rule{.id = "mig",
         .area = Area::gpu,
         .each = "gpu",
         .fault = "known(gpu.mig) and gpu.mig",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "MIG is on: the card is cut into instances",
         .expected = "off, for one model on the whole card",
         .cost = "an instance has its share of SMs, memory and bandwidth",
         .advice = "nvidia-smi -i {gpu.index} -mig 0, unless the cut is meant.",
         .evidence = "NVIDIA's MIG guide",
         .link = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"},
    Rule{.id = "persistence",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "not wsl and not container",
         .fault = "not gpu.persistence",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "persistence mode is off",
         .expected = "on, for a server without a desktop",
         .cost =
             "the driver unloads when nobody uses it: a second or more at every start, and power limits are "
             "forgotten",
         .advice = "systemctl enable --now nvidia-persistenced",
         .evidence = "NVIDIA's driver persistence guide",
         .link = "https://docs.nvidia.com/deploy/driver-persistence/"},
    Rule{.id = "bandwidth",
         .area = Area::gpu,
         .each = "gpu",
         .applies = "known(gpu.measured_gb_per_s)",
         .fault = "gpu.measured_gb_per_s < 0.85 * gpu.gb_per_s",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "memory reads at {gpu.measured_gb_per_s} GB/s, measured now",
         .expected = "at least 85 % of the published {gpu.gb_per_s} GB/s (an H200 reaches 95 %)",
         .cost = "decoding is bound by it: the floor falls by the same factor",
         .advice = "Look at the findings about clocks, ECC, power and other processes first; then at the "
                   "memory clock in "
                   "nvidia-smi -q -d CLOCK.",
         .evidence = "our own read-only kernel; 4,547 of 4,800 GB/s on an H200",
         .link = "https://github.com/local-inference-lab/rtx6kpro"},
};

}  // namespace

std::span<const Rule> gpu_rules() { return kRules; }

}  // namespace fourfold::doctor
