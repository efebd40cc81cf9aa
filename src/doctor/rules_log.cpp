// Rules about lines of other engines' logs. The lines themselves are in log_lines.h.
#include <array>

#include "doctor/pages.h"
#include "doctor/rules.h"

namespace fourfold::doctor {
namespace {

constexpr std::array kRules{
    Rule{
        .id = "log-skipped-tactics",
        .area = Area::log,
        .applies = "log.given",
        .fault = "log.tma_ws_init + log.skipping_tactic + log.skipped_tactics + log.gemm_smem > 0",
        .level = Level::note,
        .sure = Sure::certain,
        .found = "{log.skipping_tactic} skipped tactics, {log.tma_ws_init} failed grouped-GEMM "
                 "initialisations, {log.skipped_tactics + log.gemm_smem} more of the kind",
        .expected =
            "some, on 99 KB of shared memory: the autotuner tries tiles that do not fit and passes over them",
        .cost = "harmless alone; the tiles that are left are within 2 % of each other",
        .advice = "Nothing to do. Look instead at the line that names the MoE backend in use.",
        .evidence = "FlashInfer#3119, #4008, #4990; all but two tiles of one epilogue fit 101,376 bytes "
                    "(compiled by us)",
        .link = "https://github.com/flashinfer-ai/flashinfer/issues/3119"},
    Rule{.id = "log-no-valid-tactics",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.no_valid_tactics > 0",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "no tactic at all was left for the fused MoE ({log.no_valid_tactics} times)",
         .expected = "at least one",
         .cost = "the engine ends, or another backend takes over",
         .advice = "Update FlashInfer to a version of May 2026 or later, which filters tiles by their real "
                   "size, and empty its cache.",
         .evidence = "FlashInfer#2927 threw away every valid tile; mended by #2984 and #2994",
         .link = "https://github.com/flashinfer-ai/flashinfer/issues/2984"},
    Rule{.id = "log-launch-shared-memory",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.launch_smem > 0",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "a kernel asked for {log.launch_smem_bytes} bytes of shared memory ({log.launch_smem} "
                  "times); a block may use 101,376",
         .expected = "at most 101,376 bytes on compute capability 12.x",
         .cost = "the kernel does not launch",
         .advice = "Update FlashInfer: the b12x dynamic kernel counts its second buffer since #4285.",
         .evidence = "FlashInfer#3807: 118,784 bytes for an intermediate size of 1024 and more",
         .link = "https://github.com/flashinfer-ai/flashinfer/issues/3807"},
    Rule{.id = "log-marlin",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.marlin > 0 and not (gpus > 0 and gpu.0.cc_number < 10)",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "Marlin ran the experts ({log.marlin} times named); the FP4 instruction was not used",
         .expected = "FLASHINFER_CUTLASS, VLLM_CUTLASS or b12x on compute capability 12.x",
         .cost = "prompts and many users: 23 % at 256 users of a model in MXFP4, 6 % of prompts of one in "
                 "NVFP4; one user: 1.5 to 5 %, sometimes nothing",
         .advice = "vLLM: --moe-backend flashinfer_b12x (or b12x), and take --moe-backend marlin away; then "
                   "measure.",
         .evidence = "sglang#32668 (gpt-oss-20b, MXFP4); GLM-5.2 in NVFP4 on eight cards, W4A4 against "
                     "W4A16; vllm#31085; b12x is never chosen by itself (vllm#54666)",
         .link = "https://github.com/sgl-project/sglang/pull/32668"},
    Rule{.id = "log-false-fp4-warning",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.no_native_fp4 > 0 and not (gpus > 0 and gpu.0.cc_number < 10)",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "the engine says the GPU has no native FP4 ({log.no_native_fp4} times)",
         .expected = "it has: compute capability 12.x multiplies FP4 with block scales",
         .cost = "weights are decoded to 16 bits (Marlin); see log-marlin",
         .advice =
             "The sentence means: no FP4 kernel was chosen. Check the backend line, --scan the installation.",
         .evidence = "ptxas accepts the instruction for sm_120a/f; vllm#31085, vllm#30135",
         .link = "https://github.com/vllm-project/vllm/issues/30135"},
    Rule{.id = "log-no-backend",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.no_backend > 0",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "no NVFP4 MoE backend accepts this deployment",
         .expected = "one",
         .cost = "the engine does not start",
         .advice = "Leave out expert parallelism and CPU offload, then options one by one; debug logging "
                   "names each backend's reason.",
         .evidence = "vLLM's own message; vllm#35065",
         .link = "https://github.com/vllm-project/vllm/issues/35065"},
    Rule{.id = "log-arch-conditional",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.arch_conditional > 0",
         .level = Level::broken,
         .sure = Sure::certain,
         .found =
             "a kernel was built without an architecture suffix and says so ({log.arch_conditional} times)",
         .expected = "a build for 120f or 120a",
         .cost = "the kernel is empty: its results are garbage",
         .advice =
             "Rebuild for 12.0f or 12.0a with CUDA 12.9 or newer; empty JIT caches; --scan shows the file.",
         .evidence = "CUTLASS#2820; compiled by us: a print and a breakpoint",
         .link = "https://github.com/NVIDIA/cutlass/issues/2820"},
    Rule{.id = "log-tma-descriptor",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.tma_descriptor > 0",
         .level = Level::broken,
         .sure = Sure::reported,
         .found = "a TMA descriptor was refused with error 715, an illegal instruction ({log.tma_descriptor} "
                  "times)",
         .expected = "none",
         .cost = "the autotuner, or the server, ends",
         .advice = "Update FlashInfer; until then switch its autotuner off for this operation.",
         .evidence = "FlashInfer#3558, #4049: the tuner made invalid inputs",
         .link = "https://github.com/flashinfer-ai/flashinfer/issues/3558"},
    Rule{.id = "log-not-building",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.not_building > 0",
         .level = Level::broken,
         .sure = Sure::certain,
         .found = "this build of vLLM left the NVFP4 kernels out",
         .expected = "kernels for 12.0f or 12.0a",
         .cost = "the finished program has no FP4 kernel to choose",
         .advice =
             "TORCH_CUDA_ARCH_LIST=12.0f (not 12.0, not 12.0+PTX) and CUDA 12.9 or newer, then build again.",
         .evidence = "vllm#37725, vllm#49904",
         .link = "https://github.com/vllm-project/vllm/issues/37725"},
    Rule{.id = "log-untuned",
         .area = Area::log,
         .applies = "log.given",
         .fault = "log.config_missing > 0",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "no tuned kernel configuration for this GPU ({log.config_missing} times)",
         .expected = "a file for this device and shape",
         .cost = "Triton kernels run with default tiles; how much that costs differs by model",
         .advice = "Run the engine's tuning script for the MoE once, or take a file from the community; "
                   "NVFP4 backends do not use it.",
         .evidence = "sglang#18870, vllm#44688",
         .link = "https://github.com/sgl-project/sglang/issues/18870"},
    Rule{
        .id = "log-ptxas-121a",
        .area = Area::log,
        .applies = "log.given",
        .fault = "log.ptxas_121a > 0",
        .level = Level::broken,
        .sure = Sure::certain,
        .found = "ptxas does not know the target it was given ({log.ptxas_121a} times)",
        .expected = "ptxas of CUDA 12.9 or newer for sm_121a",
        .cost = "kernels are not compiled; the engine ends or falls back",
        .advice = "Put a newer ptxas in front: CUDA 13 in PATH, TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas.",
        .evidence = "sm_121 came with CUDA 12.9",
        .link = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/"},
    Rule{
        .id = "log-drafts-do-not-pay",
        .area = Area::log,
        .applies = "log.given and known(log.accept_length)",
        .fault = "log.accept_length < 1.32",
        .level = Level::slow,
        .sure = Sure::likely,
        .found = "{log.accept_length} tokens a step with drafts (MTP)",
        .expected = "at least 1.32 for one draft, 1.96 for three (397B, experts alone in NVFP4)",
        .cost = "drafts read more bytes than they save",
        .advice =
            "Fewer drafts, or none. Low acceptance with another kernel for draft and model is a known cause.",
        .evidence = "bytes per step against tokens per step; sm120-moe-bench: 66 % fell to 38-43 % where "
                    "kernels differed",
        .link = pages::kAcceptance},
};

}  // namespace

std::span<const Rule> log_rules() { return kRules; }

}  // namespace fourfold::doctor
