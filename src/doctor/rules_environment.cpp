// Rules about environment variables and the options of servers that run. A variable that is not set is no
// fault.
#include <array>

#include "doctor/pages.h"
#include "doctor/rules.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kVllmEnv = "https://docs.vllm.ai/en/latest/configuration/env_vars.html";
constexpr std::string_view kNcclEnv = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
constexpr std::string_view kCudaEnv = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/";

constexpr std::array kRules{
    Rule{
        .id = "omp-threads",
        .area = Area::environment,
        .applies = "gpus > 1 and known(env.OMP_NUM_THREADS)",
        .fault = "env.OMP_NUM_THREADS * gpus > cores",
        .level = Level::slow,
        .sure = Sure::likely,
        .found = "OMP_NUM_THREADS={env.OMP_NUM_THREADS}: {env.OMP_NUM_THREADS * gpus} threads for {cores} "
                 "cores with one worker a GPU",
        .expected = "{cores_per_gpu} (cores / GPUs)",
        .cost = "workers push each other off the cores; steps wait for the last one",
        .advice = "export OMP_NUM_THREADS={cores_per_gpu}",
        .evidence = "each worker of tensor parallelism starts its own pool; 6, not 24, with TP=4 on 24 cores",
        .link = kVllmEnv},
    Rule{.id = "max-connections",
         .area = Area::environment,
         .fault = "known(env.CUDA_DEVICE_MAX_CONNECTIONS) and env.CUDA_DEVICE_MAX_CONNECTIONS == 1",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "CUDA_DEVICE_MAX_CONNECTIONS=1",
         .expected = "not set (8), for inference",
         .cost = "one hardware queue: copies and kernels of different streams wait for each other",
         .advice = "unset CUDA_DEVICE_MAX_CONNECTIONS; it is a setting of training frameworks.",
         .evidence = "CUDA Programming Guide, environment variables",
         .link = kCudaEnv},
    Rule{.id = "launch-blocking",
         .area = Area::environment,
         .fault = "known(env.CUDA_LAUNCH_BLOCKING) and env.CUDA_LAUNCH_BLOCKING == 1",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "CUDA_LAUNCH_BLOCKING=1",
         .expected = "not set",
         .cost = "every launch waits for its end; no overlap at all",
         .advice = "unset CUDA_LAUNCH_BLOCKING; it is for debugging.",
         .evidence = "CUDA Programming Guide, environment variables",
         .link = kCudaEnv},
    Rule{.id = "force-ptx",
         .area = Area::environment,
         .fault = "known(env.CUDA_FORCE_PTX_JIT) and env.CUDA_FORCE_PTX_JIT == 1",
         .level = Level::broken,
         .sure = Sure::likely,
         .found = "CUDA_FORCE_PTX_JIT=1",
         .expected = "not set",
         .cost = "prebuilt kernels are ignored; FP4 kernels have no plain PTX to be made from",
         .advice = "unset CUDA_FORCE_PTX_JIT",
         .evidence =
             "CUDA Programming Guide; PTX for plain compute_120 has no FP4 instruction (ptxas refuses it)",
         .link = kCudaEnv},
    Rule{.id = "expandable-segments",
         .area = Area::environment,
         .fault = "known(env.PYTORCH_CUDA_ALLOC_CONF) and env.PYTORCH_CUDA_ALLOC_CONF contains "
                  "'expandable_segments:True' and gpus > 1",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "PYTORCH_CUDA_ALLOC_CONF={env.PYTORCH_CUDA_ALLOC_CONF}",
         .expected = "no expandable segments where buffers are shared between processes",
         .cost = "memory pools for sleep mode refuse it; handles of such memory cannot always be shared "
                 "between workers",
         .advice = "unset PYTORCH_CUDA_ALLOC_CONF, unless you set it against fragmentation and it helps.",
         .evidence = "PyTorch's notes on the allocator; vLLM refuses its memory pool with it",
         .link = "https://docs.pytorch.org/docs/stable/notes/cuda.html"},
    Rule{.id = "marlin-forced",
         .area = Area::environment,
         .fault = "known(env.VLLM_MOE_FORCE_MARLIN) and env.VLLM_MOE_FORCE_MARLIN == 1 or servers.marlin",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "Marlin is forced (VLLM_MOE_FORCE_MARLIN={env.VLLM_MOE_FORCE_MARLIN}; servers: {servers})",
         .expected = "the engine's own choice, or --moe-backend flashinfer_b12x on SM120",
         .cost = "16-bit activations: prompts and many users lose most (23 % at 256 users of a model in "
                 "MXFP4; of one in NVFP4 6 % of prompts), one user 1.5 to 5 % or nothing",
         .advice = "Take the setting away, measure prompts and 32 users again. For one user Marlin may stay: "
                   "measure.",
         .evidence = "sglang#32668, gpt-oss-20b in MXFP4: 210 against 221 tok/s, 8,945 against 11,636 at 256 "
                     "users; GLM-5.2 in NVFP4 on eight cards: 85.0 against 86.3, prompts 5,592 against "
                     "5,960; W4A16 often wins in decoding",
         .link = "https://github.com/sgl-project/sglang/pull/32668"},
    Rule{.id = "worker-fork",
         .area = Area::environment,
         .fault = "known(env.VLLM_WORKER_MULTIPROC_METHOD) and env.VLLM_WORKER_MULTIPROC_METHOD == 'fork' "
                  "and gpus > 1",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "VLLM_WORKER_MULTIPROC_METHOD=fork",
         .expected = "spawn",
         .cost = "a program that touched CUDA before it starts vLLM fails: CUDA cannot be used again in a "
                 "forked process",
         .advice = "export VLLM_WORKER_MULTIPROC_METHOD=spawn",
         .evidence = "vLLM's troubleshooting page",
         .link = "https://docs.vllm.ai/en/latest/usage/troubleshooting.html"},
    Rule{.id = "nccl-p2p-disabled",
         .area = Area::environment,
         .applies = "gpus > 1 and known(env.NCCL_P2P_DISABLE)",
         .fault = "env.NCCL_P2P_DISABLE == 1 and peers.p2p == 'ok'",
         .level = Level::slow,
         .sure = Sure::reported,
         .found = "NCCL_P2P_DISABLE=1, while the driver offers P2P for every pair",
         .expected = "not set, once P2P is proved to return right values",
         .cost = "13 to 42 % of the speed on four cards",
         .advice = "unset NCCL_P2P_DISABLE after iommu=pt and a doctor run that checks the values.",
         .evidence = "sm120-moe-bench: P2P on against off, 1 to 8 users, 0 to 128K tokens of context",
         .link = pages::kP2p},
    Rule{.id = "nccl-shm-disabled",
         .area = Area::environment,
         .fault = "known(env.NCCL_SHM_DISABLE) and env.NCCL_SHM_DISABLE == 1 and gpus > 1",
         .level = Level::slow,
         .sure = Sure::certain,
         .found = "NCCL_SHM_DISABLE=1",
         .expected = "not set",
         .cost = "without P2P, GPUs of one machine then talk over the network stack",
         .advice = "unset NCCL_SHM_DISABLE; give the container --ipc=host instead.",
         .evidence = "NCCL's environment variables",
         .link = kNcclEnv},
    Rule{.id = "nccl-p2p-level",
         .area = Area::environment,
         .applies = "gpus > 1 and peers.p2p == 'ok' and not (known(peers.nvlink) and peers.nvlink)",
         .fault = "(peers.distance == 'hostbridge' or peers.distance == 'node' or peers.distance == "
                  "'system') and not known(env.NCCL_P2P_LEVEL) and not known(env.NCCL_P2P_DISABLE)",
         .level = Level::note,
         .sure = Sure::likely,
         .found = "GPUs meet at the CPU ({peers.distance}), and NCCL_P2P_LEVEL is not set",
         .expected = "NCCL_P2P_LEVEL=SYS where P2P works across the CPU",
         .cost = "NCCL may choose shared memory instead of P2P for such pairs",
         .advice = "Try NCCL_P2P_LEVEL=SYS; NCCL_DEBUG=INFO shows what each pair uses.",
         .evidence = "NCCL's environment variables; it also assumes 16 GB/s for AMD CPUs (nccl#2127)",
         .link = "https://github.com/NVIDIA/nccl/pull/2127"},
    Rule{.id = "ggml-p2p",
         .area = Area::environment,
         .fault = "known(env.GGML_CUDA_P2P) and env.GGML_CUDA_P2P == 0",
         .level = Level::note,
         .sure = Sure::reported,
         .found = "GGML_CUDA_P2P=0",
         .expected = "not set: any value, 0 too, switches P2P on",
         .cost = "P2P where you meant none; wrong values where it is broken",
         .advice = "unset GGML_CUDA_P2P",
         .evidence = "unsloth#10613",
         .link = "https://github.com/unslothai/unsloth/issues/10613"},
    Rule{.id = "hidden-gpus",
         .area = Area::environment,
         .applies = "known(env.CUDA_VISIBLE_DEVICES)",
         .fault = "gpus > 1",
         .level = Level::note,
         .sure = Sure::certain,
         .found = "CUDA_VISIBLE_DEVICES={env.CUDA_VISIBLE_DEVICES}, the machine has {gpus} GPUs",
         .expected = "a choice",
         .cost = "programs see these GPUs only, numbered anew",
         .advice = "unset CUDA_VISIBLE_DEVICES to use all.",
         .evidence = "CUDA Programming Guide, environment variables",
         .link = kCudaEnv},
    Rule{
        .id = "arch-list",
        .area = Area::environment,
        .applies = "known(env.TORCH_CUDA_ARCH_LIST)",
        .fault =
            "(env.TORCH_CUDA_ARCH_LIST contains '12.0' and not (env.TORCH_CUDA_ARCH_LIST contains '12.0a' or "
            "env.TORCH_CUDA_ARCH_LIST contains '12.0f')) or (env.TORCH_CUDA_ARCH_LIST contains '12.1' and "
            "not (env.TORCH_CUDA_ARCH_LIST contains '12.1a' or env.TORCH_CUDA_ARCH_LIST contains '12.1f'))",
        .level = Level::broken,
        .sure = Sure::certain,
        .found = "TORCH_CUDA_ARCH_LIST={env.TORCH_CUDA_ARCH_LIST}",
        .expected = "12.0f or 12.0a (12.1f or 12.1a on DGX Spark)",
        .cost = "whatever is built now has no FP4 kernels; '12.0+PTX' images skip NVFP4",
        .advice = "export TORCH_CUDA_ARCH_LIST=12.0f (CUDA 12.9 or newer), then rebuild.",
        .evidence = "vllm#40082, vllm#41738; ptxas refuses the FP4 instruction without suffix",
        .link = "https://github.com/vllm-project/vllm/issues/41738"},
};

}  // namespace

std::span<const Rule> environment_rules() { return kRules; }

}  // namespace fourfold::doctor
