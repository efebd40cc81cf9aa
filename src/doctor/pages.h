// Pages of other people that rules quote, at the commit that was read: a link shows the sentence it stands
// for, and still will when the page has changed. A rule whose evidence is on no page has no link.
#pragma once

#include <string_view>

namespace fourfold::doctor::pages {

// brandonmmusic-max/sm120-moe-bench, 2026-04-08: four RTX PRO 6000.
inline constexpr std::string_view kJourney =  // WSL2, native Linux, driver 595, P2P: tok/s after each step
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "README.md#optimization-journey";
inline constexpr std::string_view kP2p =  // 13 to 42 % by users and context
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "README.md#p2p-impact-before--after-removing-nccl_p2p_disable1";
inline constexpr std::string_view kCounting =  // 283 tok/s with thinking at the API, 139 in the engine
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "README.md#methodology-notes";
inline constexpr std::string_view kLinkWidth =  // x4 in place of x16, reseat
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "README.md#key-findings";
inline constexpr std::string_view kMixedCards =  // clocks of 300 W and 600 W variants side by side
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "benchmarks/decode_benchmark_results.md";
inline constexpr std::string_view kProfile =  // all-reduce is 68.8 % of GPU time
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "fused-moe/PROFILING_RESULTS.md";
inline constexpr std::string_view kAcceptance =  // 65.9 % fell to 38-43 %
    "https://github.com/brandonmmusic-max/sm120-moe-bench/blob/a5213ca77d7549a60c399cc12768b6a374351ef0/"
    "fused-moe/SPRINT20_BFD_FIX.md";

// local-inference-lab/rtx6kpro, 2026-05-17: the wiki of owners of these cards.
inline constexpr std::string_view kWatts =  // 300 against 500 W: 4 % for one user, 30 % for 64
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "benchmarks/results.md#wattage-performance-scaling";
inline constexpr std::string_view kQwen397b =  // 108.1 tok/s without MTP, 180.4 with it
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "models/qwen35-397b.md#benchmark-results";
inline constexpr std::string_view kBar1 =  // 256 MB cripple P2P
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "hardware/pcie-bandwidth.md#bar1-configuration";
inline constexpr std::string_view kTopology =  // what crosses the socket link
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "hardware/topology.md";
inline constexpr std::string_view kLockups =  // uvm_disable_hmm=1
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "troubleshooting/common-issues.md#nccl-p2p-lockups";
inline constexpr std::string_view kLinkDown =  // pcie_aspm=off
    "https://github.com/local-inference-lab/rtx6kpro/blob/e2c2b9577c938525d99a4ff62ba4a8ecc47a9990/"
    "troubleshooting/common-issues.md#surprise-link-down";

}  // namespace fourfold::doctor::pages
