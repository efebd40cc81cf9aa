// Rules about driver, toolkit and the kernels that are installed.
#include <array>

#include "doctor/rules.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kGuide = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/";
constexpr std::string_view kFamilies =
    "https://developer.nvidia.com/blog/"
    "nvidia-blackwell-and-nvidia-cuda-12-9-introduce-family-specific-architecture-"
    "features";

constexpr std::array kRules{
    Rule{.id = "driver-too-old",
         .area = Area::driver,
         .applies = "gpus > 0",
         .fault = "gpu.0.cc_number >= 12 and driver.major < 570",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "driver {driver.version}",
         .expected = "570 at the very least for compute capability 12.x; 595 or newer to be fast",
         .cost = "CUDA 12.8, the first with these chips, does not start",
         .advice = "Install nvidia-open from NVIDIA's CUDA repository (595 or newer) and restart.",
         .evidence = "CUDA 12.8 release notes: driver 570",
         .link = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/"},
    Rule{
        .id = "driver-old",
        .area = Area::driver,
        .applies = "gpus > 0",
        .fault = "gpu.0.cc_number >= 12 and driver.major >= 570 and driver.major < 595",
        .level = Level::slow,
        .sure = Sure::reported,
        .found = "driver {driver.version}",
        .expected = "595 or newer",
        .cost = "119 to 142 tok/s with 595 and iommu=pt together, in one owner's series on four RTX PRO 6000",
        .advice = "Install nvidia-open from NVIDIA's CUDA repository (595 or newer) and restart; the "
                  "distribution's own "
                  "package is often older.",
        .evidence = "sm120-moe-bench README: WSL2 55, native 119, driver 595 with iommu=pt 142 tok/s",
        .link = "https://github.com/brandonmmusic-max/sm120-moe-bench"},
    Rule{.id = "driver-closed",
         .area = Area::driver,
         .fault = "gpus == 0 and pci.nvidia > 0 and known(driver.open) and not driver.open and "
                  "driver.error != 'driver and library differ'",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "kernel module {driver.module} is the proprietary one, and no GPU answers ({driver.error})",
         .expected = "the open kernel module; Blackwell has no other",
         .cost = "no GPU work at all",
         .advice = "Replace it: apt install nvidia-open (NVIDIA's CUDA repository), restart.",
         .evidence = "NVIDIA: Blackwell and later need the open kernel modules",
         .link = kGuide},
    Rule{.id = "driver-mismatch",
         .area = Area::driver,
         .fault = "driver.error == 'driver and library differ'",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "kernel module {driver.module}, but libnvidia-ml.so.1 is of another version",
         .expected = "one version",
         .cost = "no GPU work until they agree",
         .advice = "Restart: a driver was updated under a running kernel. In a container, update the host's "
                   "nvidia-container-toolkit.",
         .evidence = "NVML's own answer, NVML_ERROR_LIB_RM_VERSION_MISMATCH",
         .link = "https://docs.nvidia.com/deploy/nvml-api/"},
    Rule{
        .id = "toolkit-old",
        .area = Area::driver,
        .applies = "gpus > 0 and toolkit.found",
        .fault = "gpu.0.cc_number >= 12 and toolkit.code < 1209",
        .level = Level::broken,
        .sure = Sure::certain,
        .found = "CUDA toolkit {toolkit.version} in /usr/local/cuda",
        .expected = "12.9 or newer for compute capability 12.x",
        .cost = "engines that compile at start (FlashInfer) refuse, or build kernels without FP4; three "
                "default paths "
                "of vLLM end at start",
        .advice =
            "Install CUDA 12.9 or newer, empty the JIT caches (~/.cache/flashinfer, ~/.triton), start again.",
        .evidence = "family targets (120f) came with 12.9; FlashInfer refuses less; vllm#50705",
        .link = "https://github.com/vllm-project/vllm/issues/50705"},
    Rule{.id = "toolkit-missing",
         .area = Area::driver,
         .applies = "gpus > 0",
         .fault = "not toolkit.found",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "no CUDA toolkit in /usr/local/cuda",
         .expected = "none is needed for built programs; 12.9 or newer where kernels are compiled at start",
         .cost = "FlashInfer and Triton kernels that are not prebuilt cannot be made",
         .advice = "Nothing for fourfold. For vLLM or SGLang from source: install CUDA 12.9 or newer.",
         .evidence = "looked for /usr/local/cuda/include/cuda_runtime_api.h",
         .link = kFamilies},
    Rule{.id = "toolkit-newer-than-driver",
         .area = Area::driver,
         .applies = "gpus > 0 and toolkit.found",
         .fault = "toolkit.major > driver.cuda_major",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "toolkit {toolkit.version}; the driver knows CUDA {driver.cuda}",
         .expected = "a driver of the toolkit's major version, or newer",
         .cost =
             "programs built with it fail: the driver version is insufficient for the CUDA runtime version",
         .advice = "Update the driver (nvidia-open, 595 or newer).",
         .evidence = "CUDA compatibility: minor versions mix, major versions do not",
         .link = "https://docs.nvidia.com/deploy/cuda-compatibility/"},
    Rule{.id = "library-path",
         .area = Area::driver,
         .applies = "toolkit.found and known(env.LD_LIBRARY_PATH)",
         .fault = "env.LD_LIBRARY_PATH contains 'cuda-11' or env.LD_LIBRARY_PATH contains 'cuda-12' and "
                  "toolkit.code >= "
                  "1300 or env.LD_LIBRARY_PATH contains 'cuda-13' and toolkit.code < 1300",
         .level = Level::note,
         .sure = Sure::likely,
         .found =
             "LD_LIBRARY_PATH names another CUDA ({env.LD_LIBRARY_PATH}) than the toolkit {toolkit.version}",
         .expected = "one CUDA",
         .cost = "a process may load one version and compile with the other",
         .advice = "Take the entry out of LD_LIBRARY_PATH; wheels bring their own runtime.",
         .evidence = "how the dynamic linker searches",
         .link = "https://man7.org/linux/man-pages/man8/ld.so.8.html"},
    Rule{
        .id = "kernels-plain",
        .area = Area::kernels,
        .applies = "scan.given",
        .fault = "scan.plain_fp4 > 0",
        .level = Level::broken,
        .sure = Sure::likely,
        .found = "{scan.plain_fp4} FP4 kernel image(s) built for sm_12x without suffix, first in "
                 "{scan.plain_fp4_file}",
        .expected = "sm_120f, sm_120a, sm_121f or sm_121a",
        .cost =
            "a CUTLASS FP4 kernel compiled for plain compute_120 is empty: a message and a breakpoint, no "
            "multiplication",
        .advice =
            "Rebuild with 12.0f (or 12.0a) in TORCH_CUDA_ARCH_LIST and CUDA 12.9 or newer, and empty the JIT "
            "cache.",
        .evidence = "compiled by us with nvcc 13.0: 101 lines of PTX, no MMA; field report CUTLASS#2820",
        .link = "https://github.com/NVIDIA/cutlass/issues/2820"},
    Rule{
        .id = "kernels-120a-on-121",
        .area = Area::kernels,
        .applies = "scan.given and gpus > 0",
        .fault =
            "gpu.0.cc_number == 12.1 and scan.sm120a > 0 and scan.sm120f == 0 and scan.sm121 + scan.sm121a + "
            "scan.sm121f == 0",
        .level = Level::broken,
        .sure = Sure::certain,
        .found = "{scan.sm120a} sm_120a image(s), first in {scan.sm120a_file}; this GPU is 12.1",
        .expected = "sm_120f or sm_121a/f; sm_120a is for 12.0 alone",
        .cost = "they do not load on 12.1 (no kernel image, or an illegal instruction)",
        .advice =
            "Rebuild with 12.0f or 12.1a. On a 12.0 GPU 120a is no fault: the same instructions as 120f.",
        .evidence = "architecture-specific code runs on its own chip only; FlashInfer's own rule",
        .link = kFamilies},
    Rule{
        .id = "kernels-none",
        .area = Area::kernels,
        .applies = "scan.given and gpus > 0",
        .fault = "gpu.0.cc_number >= 12 and scan.images > 0 and scan.sm12x == 0",
        .level = Level::broken,
        .sure = Sure::certain,
        .found = "{scan.images} kernel image(s) in {scan.objects} file(s), none for sm_12x (PTX: {scan.ptx})",
        .expected = "sm_120f/a, or sm_121f/a on 12.1",
        .cost = "no kernel image, or PTX compiled at start without FP4",
        .advice = "Install a build for 12.0 (CUDA 12.9 or newer wheels), or build from source with "
                  "TORCH_CUDA_ARCH_LIST=12.0f.",
        .evidence = "wheels with 0 of 12,681 images for sm_120/121 are on record (vllm#40082)",
        .link = "https://github.com/vllm-project/vllm/issues/40082"},
    Rule{.id = "kernels-suffix-unknown",
         .area = Area::kernels,
         .applies = "scan.given",
         .fault = "scan.suffix_unknown > 0",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "{scan.suffix_unknown} sm_12x image(s) do not say with which suffix they were built",
         .expected = "a note in the image, as CUDA 12 and newer write it",
         .cost = "doctor cannot tell an empty kernel from a good one there",
         .advice = "cuobjdump -lelf of the CUDA toolkit shows the file names, which carry the suffix.",
         .evidence = "the section .note.nv.tkinfo is missing",
         .link = "https://docs.nvidia.com/cuda/cuda-binary-utilities/"},
    Rule{.id = "kernels-stale",
         .area = Area::kernels,
         .applies = "scan.given",
         .fault = "scan.cached_before_fix > 0",
         .level = Level::broken,
         .sure = Sure::reported,
         .found =
             "{scan.cached_before_fix} FlashInfer object(s) in a JIT cache are older than 2026-04-01, first "
             "{scan.cached_before_fix_file}",
         .expected = "built after the dependent-launch fix of that day",
         .cost = "a race: NaN, runs of '!!!!', random illegal instructions under load",
         .advice = "flashinfer clear-cache (or remove ~/.cache/flashinfer), update FlashInfer, start again.",
         .evidence = "FlashInfer#2708, fixed for the fused MoE by #2913; the cache keeps the old kernel",
         .link = "https://github.com/flashinfer-ai/flashinfer/issues/2913"},
    Rule{.id = "kernels-cache-old",
         .area = Area::kernels,
         .applies = "scan.given",
         .fault = "scan.cached_older > 0",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "{scan.cached_older} cached object(s) are older than the newest library scanned",
         .expected = "caches younger than the libraries they were made by",
         .cost = "a fixed bug may live on in the cache",
         .advice = "Remove the cache once after every update.",
         .evidence = "file dates; FlashInfer#2708 is the known case",
         .link = "https://github.com/flashinfer-ai/flashinfer/issues/2708"},
};

}  // namespace

std::span<const Rule> driver_rules() { return kRules; }

}  // namespace fourfold::doctor
