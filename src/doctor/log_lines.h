// The lines of other engines' logs that mean something on these GPUs: text to look for and the fact it counts
// in. Others' messages are quoted as they print them.
#pragma once

#include <array>
#include <string_view>

namespace fourfold::doctor {

enum class LineKind {
  count,       // one more
  backend,     // names the MoE backend in use
  quoted,      // so does what follows in quotes
  smem_bytes,  // "Allocated: N bytes"
  number,      // a number follows; the last one counts
  best,        // a number follows; the largest one counts
  timing,      // llama.cpp's timing: a number stands before "tokens per second"
};

struct LogLine {
  std::string_view text;
  std::string_view also;  // must stand in the same line; empty: nothing more
  std::string_view fact;  // "log." + this
  LineKind kind;
};

inline constexpr std::array kLogLines = std::to_array<LogLine>({
    // The fourteen.
    {"Failed to initialize cutlass TMA WS grouped gemm", "", "tma_ws_init", LineKind::count},
    {"[Autotuner]: Skipping tactic", "", "skipping_tactic", LineKind::count},
    {"unsupported tactic(s) for", "Skipped ", "skipped_tactics", LineKind::count},
    {"MoE grouped GEMM requires", "bytes shared memory but device supports", "gemm_smem", LineKind::count},
    {"launch shared memory exceeds current GPU arch", "", "launch_smem", LineKind::smem_bytes},
    {"NvFp4 MoE backend out of", "Using ", "kernel", LineKind::backend},
    {"Your GPU does not have native support for FP4 computation", "", "no_native_fp4", LineKind::count},
    {"No NvFp4 MoE backend supports the deployment configuration", "", "no_backend", LineKind::count},
    {"Arch conditional MMA instruction used without targeting appropriate compute capability", "",
     "arch_conditional", LineKind::count},
    {"Failed to initialize the TMA descriptor 715", "", "tma_descriptor", LineKind::count},
    {"Not building NVFP4 as no compatible archs were found", "", "not_building", LineKind::count},
    {"Config file not found at", "", "config_missing", LineKind::count},
    {"No valid tactics available for fused moe op", "", "no_valid_tactics", LineKind::count},
    {"Value 'sm_12", "is not defined", "ptxas_121a", LineKind::count},
    // SGLang's arguments.
    {"moe_runner_backend='", "", "kernel", LineKind::quoted},
    // Drafts: vLLM, SGLang, llama.cpp.
    {"Mean acceptance length:", "", "accept_length", LineKind::number},
    {"accept len:", "", "accept_length", LineKind::number},
    {"mean acceptance length =", "", "accept_length", LineKind::number},
    {"num_speculative_tokens", "", "drafts", LineKind::number},
    {"speculative_num_steps", "", "drafts", LineKind::number},
    // Speed as the engine counts it.
    {"Avg generation throughput:", "", "tok_per_s", LineKind::best},
    {"gen throughput (token/s):", "", "tok_per_s", LineKind::best},
    {"ms per token,", "eval time =", "tok_per_s", LineKind::timing},
});

}  // namespace fourfold::doctor
