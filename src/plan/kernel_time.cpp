#include "plan/kernel_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "plan/instruction_counts.h"
#include "plan/record_size.h"

namespace fourfold::plan {
namespace {

constexpr Evidence kFitted = Evidence::measured;

// ---- fitted to bench/results/moe-h200-{35b*,122b}.csv and model-h200-{35b*,122b}*.csv ----
constexpr Constant kNorm{"p", 3.567, "", kFitted, "how well memory, issue and chain hide each other"};
constexpr Constant kStart{"start", 1.335, "us", kFitted, "of a kernel with weights, behind its predecessor"};
constexpr Constant kSmallStart{"small start", 4.071, "us", kFitted,
                               "of a kernel without: norm, sum, routing, combine"};
constexpr Constant kNormStart{"norm", 4.083, "us", kFitted, "a matrix's kernel that norms its input"};
constexpr Constant kNormRow{"norm row", 0.791, "us", kFitted, "each further row it norms"};
constexpr Constant kRank{"rank", 0.549, "us", kFitted, "ranking 256 experts"};
constexpr Constant kFewRecord{"few record", 0.666, "us", kFitted,
                              "a record of a warp of the few-token experts, one after another"};
constexpr Constant kFedRecord{"fed record", 0.58, "us", kFitted,
                              "a record of a warp that another one feeds; to one token of the 122B alone"};
constexpr Constant kFewBf16{"dense_few bf16", 64.99, "clocks", kFitted, "a record, up to 8 tokens"};
constexpr Constant kFewFp8{"dense_few fp8", 97.6, "clocks", kFitted, "a record, up to 8 tokens"};
constexpr Constant kFewNvfp4{"dense_few nvfp4", 120.7, "clocks", kFitted, "a record, up to 8 tokens"};
constexpr Constant kMany{"dense_many", 24.03, "clocks", kFitted, "a record, 9 to 128 tokens"};
constexpr Constant kManyToken{"dense_many token", 0.398, "clocks", kFitted, "a record and token"};
constexpr Constant kStream{"moe_stream", 53.75, "clocks", kFitted, "a record and tile of tokens"};
constexpr Constant kTileFp4{"moe_gemm fp4", 59.57, "clocks", kFitted, "a record and tile, wgmma"};
constexpr Constant kTileBf16{"moe_gemm bf16", 91.2, "clocks", kFitted, "a record and tile, wgmma"};
constexpr Constant kTileFp8{"moe_gemm fp8", 130.7, "clocks", kFitted, "a record and tile, wgmma"};
constexpr Constant kTileToken{"moe_gemm token", 1.202, "clocks", kFitted, "a record and token, wgmma"};
constexpr Constant kAttendStart{"attend start", 0.685, "us", kFitted, "of attention over pages"};
constexpr Constant kSmBoost{"boost", 1.954, "", kFitted,
                            "of what an SM reads where all do, where others are idle"};
constexpr Constant kRowShare{"row share", 0.572, "", kFitted,
                             "of the memory's rate for rows between kernels"};
constexpr Constant kPromptShare{"prompt attention", 0.297, "", kFitted,
                                "of the tensor cores' rate (4,096 a clock and SM)"};
// 4,547 GB/s over 132 SMs. Bytes in flight over a latency, so it belongs to an SM and not to the memory.
constexpr Constant kSmRead{"SM", 34.45, "GB/s", Evidence::measured, "what an SM reads where all do"};
// ---- measured apart from them, the 35B on the H200: docs/performance.md, docs/decisions/0009 ----
constexpr Constant kDelta{"delta rule", 3.6, "us", Evidence::measured, "one block an SM"};
constexpr Constant kDeltaPair{"delta pair", 5.5, "us", Evidence::measured, "two blocks an SM"};
constexpr Constant kDeltaRow{"delta row", 7'710, "clocks", Evidence::measured,
                             "each further row of a sequence (the rule of one, by clock stamps)"};
constexpr Constant kDeltaChunk{"delta chunk", 46.5, "us", Evidence::measured, "a wave of chunks prepared"};
constexpr Constant kDeltaScan{"delta scan", 1.75, "us", Evidence::measured, "a chunk of 64 rows"};
constexpr Constant kDeltaNorm{"delta norm", 0.71, "", Evidence::measured,
                              "share of the memory's rate at which the gated norm takes a prompt's rows"};
// ---- measured alone on the H200, 2,048 tokens: bench/results/mla-wgmma-h200.txt ----
constexpr Constant kLatentShare{"latent prompt", 0.413, "", Evidence::measured,
                                "of the tensor cores' rate, wgmma, latents of up to 256"};
constexpr Constant kWideLatentShare{"latent prompt 512", 0.309, "", Evidence::measured,
                                    "the same, where two warpgroups make the same scores"};
// ---- fitted to the tiles on mma of bench/results/rows-h200-35b.csv, with the stall in chip_rates.cpp ----
constexpr Constant kTileDecode{"tile decode", 0.44, "", kFitted,
                               "of a visit's instructions, what empty groups of tokens do not save"};
// ---- counted by hand in the machine code of attend_prompt 256 bf16 for SM120: 2,349 for a page ----
constexpr Constant kPromptProduct{"prompt product", 9.2, "instructions", Evidence::measured,
                                  "of a warp for a product of attention on mma, counted in its code"};
// ---- by design ----
constexpr Constant kGroupPadding{"group padding", 4, "tokens", Evidence::assumed,
                                 "mma takes tokens in groups of eight, so half of that a tile"};
constexpr Constant kFewDown{"few down", 0.25, "", Evidence::assumed,
                            "of GEMM2's records wait for GEMM1; the others are in shared memory"};
constexpr Constant kPadding{"padding", 8, "tokens", Evidence::assumed,
                            "wgmma rounds a tile up to 16, so half of that"};

constexpr std::array kAll{
    kNorm,        kStart,      kSmallStart,    kNormStart,    kNormRow,     kRank,
    kFewRecord,   kFedRecord,  kFewBf16,       kFewFp8,       kFewNvfp4,    kMany,
    kManyToken,   kStream,     kTileFp4,       kTileBf16,     kTileFp8,     kTileToken,
    kAttendStart, kSmBoost,    kSmRead,        kRowShare,     kPromptShare, kDelta,
    kDeltaPair,   kDeltaRow,   kDeltaChunk,    kDeltaScan,    kDeltaNorm,   kFewDown,
    kPadding,     kTileDecode, kPromptProduct, kGroupPadding, kLatentShare, kWideLatentShare};

constexpr double kProductFlops = 2.0 * 16 * 8 * 16;  // of mma in bf16
constexpr int kSchedulers = 4;                       // of an SM: each issues one instruction a clock
constexpr int kScanBlocks = 3;                       // on an SM

double side_by_side(std::initializer_list<double> parts) {
  double sum = 0;
  for (const double part : parts) sum += std::pow(part, kNorm.value);
  return std::pow(sum, 1 / kNorm.value);
}

class Timer {
 public:
  Timer(const KernelWork& work, const ChipRates& chip) : work_(work), chip_(chip) {}

  double us() const {
    const std::string& kernel = work_.kernel;
    if (kernel.starts_with("moe_few_")) return few();
    if (kernel == "dense_few" || kernel == "dense_near" || kernel == "dense_pair") return dense_few();
    if (kernel == "dense_many" || kernel == "dense_many_pair" || kernel == "dense_tall") return dense_many();
    // The block of the tables beside the others.
    if (kernel == "dense_table") return std::max(dense_few(), wait(kSmallStart) + ranking());
    if (kernel == "dense_many_table") return std::max(dense_many(), wait(kSmallStart) + ranking());
    if (kernel == "moe_stream")
      return wait(kStart) + side_by_side({memory(), issue(work_.visits * kStream.value)});
    if (kernel == "moe_gemm") return tiled();
    if (kernel == "attend")
      return wait(kAttendStart) +
             std::max(work_.other_bytes / rate(), work_.chain * work_.link_bytes / sm_rate(work_.chain == 1));
    if (kernel == "attend_prompt" || kernel == "attend_latent_prompt")
      return wait(kAttendStart) + work_.flops / (prompt_flops() * clocks_per_us());
    if (kernel.starts_with("delta_")) return delta();
    if (kernel.starts_with("attend_latent") || kernel == "head_linear" || kernel == "absorb_queries" ||
        kernel == "combine_expand")
      return wait(kAttendStart) +
             std::max(work_.other_bytes / rate(), work_.flops / (mma_flops() * clocks_per_us()));
    if (work_.weight_bytes > 0)
      fail(Code::internal, "{} reads weights, and nothing here says how long that takes", kernel);
    return wait(kSmallStart) + ranking() + work_.other_bytes / (kRowShare.value * rate());
  }

 private:
  // A latency: what is in microseconds on the H200.
  double wait(const Constant& constant) const { return chip_.latency * constant.value; }
  double rate() const { return 1e3 * chip_.gb_per_s; }                  // bytes a microsecond
  double clocks_per_us() const { return 1e3 * chip_.ghz * chip_.sms; }  // of all SMs
  double ranking() const { return wait(kRank) * work_.experts / 256; }
  double sm_rate(bool alone) const {
    return 1e3 * kSmRead.value * (alone ? kSmBoost.value : 1) / chip_.latency;
  }
  bool leaves_sms() const { return work_.blocks > 0 && work_.blocks < chip_.sms; }
  double idle() const { return leaves_sms() ? static_cast<double>(chip_.sms) / work_.blocks : 1; }
  double memory() const {
    return work_.weight_bytes / (leaves_sms() ? std::min(rate(), work_.blocks * sm_rate(true)) : rate());
  }
  double issue(double clocks) const { return clocks / clocks_per_us() * idle(); }

  double few() const {
    const bool down = work_.kernel == "moe_few_down";
    const Constant& record = work_.kernel == "moe_few_stream" ? kFedRecord : kFewRecord;
    return wait(kStart) + ranking() +
           side_by_side({memory(), wait(record) * work_.chain * (down ? kFewDown.value : 1)});
  }
  double dense_few() const {
    const bool norms = work_.kernel == "dense_pair" || work_.row.find("norm") != std::string::npos;
    const Constant& clocks = work_.format == "bf16" ? kFewBf16 : work_.format == "fp8" ? kFewFp8 : kFewNvfp4;
    const double norm = norms ? wait(kNormStart) + wait(kNormRow) * (work_.tokens - 1) : 0;
    return wait(kStart) + norm + side_by_side({memory(), issue(work_.visits * clocks.value)});
  }
  double dense_many() const {
    const double clocks = work_.visits * kMany.value + work_.visit_tokens * kManyToken.value;
    return wait(kStart) + side_by_side({memory(), issue(clocks)});
  }
  double tiled() const {
    if (work_.row.find("wgmma") == std::string::npos) return tiled_on_mma();
    const Constant& clocks = work_.format == "bf16" ? kTileBf16 : work_.format == "fp8" ? kTileFp8 : kTileFp4;
    const double tokens = work_.visit_tokens + kPadding.value * work_.visits;
    return wait(kStart) +
           side_by_side({memory(), issue(work_.visits * clocks.value + tokens * kTileToken.value)});
  }
  // From the machine code: what a tile's products issue, as long as a warp's few neighbours let it wait.
  // Empty groups of eight tokens are left out, decoding is not.
  double tiled_on_mma() const {
    const InstructionCount* count = find_instruction_count(work_.row, chip_.code);
    if (count == nullptr)
      fail(Code::unsupported_op, "{}: its instructions on {} were not counted (tools/count_instructions.py)",
           work_.row, chip_.code);
    const double slots = work_.visits * work_.tile_tokens;
    const double filled = std::min(1.0, (work_.visit_tokens + kGroupPadding.value * work_.visits) / slots);
    const double share = kTileDecode.value + (1 - kTileDecode.value) * filled;
    const double multiply_adds = share * slots * kRecordRows * kRecordColumns;
    const double issued = std::max(count->issued, 2 * count->alu);  // the ALU takes half a warp a clock
    const double waits = multiply_adds / count->multiply_adds * issued / kSchedulers * chip_.tile_stall;
    const double wide =
        2 * count->multiply_adds / kProductFlops;  // FP8's products are twice bf16's, FP4's more
    const double rate = wide > 2 ? chip_.fp4_flops : wide * chip_.tensor_flops;
    return wait(kStart) + side_by_side({memory(), issue(std::max(waits, 2 * multiply_adds / rate))});
  }
  // A clock and SM, of a prompt's attention.
  double prompt_flops() const {
    if (chip_.code != "sm90") return mma_flops();
    if (work_.kernel != "attend_latent_prompt") return kPromptShare.value * chip_.tensor_flops;
    return (work_.latent > 256 ? kWideLatentShare : kLatentShare).value * chip_.tensor_flops;
  }
  double mma_flops() const {
    const double clocks = kPromptProduct.value / kSchedulers * chip_.tile_stall;
    return std::min(kProductFlops / clocks, chip_.tensor_flops);
  }
  double delta() const {
    // So many on an SM, or what its shared memory holds.
    const auto waves = [&](int blocks) {
      const int fit =
          work_.shared_bytes > 0 ? std::max(1, chip_.sm_shared_bytes / work_.shared_bytes) : blocks;
      return std::ceil(1.0 * work_.blocks / (std::min(blocks, fit) * chip_.sms));
    };
    if (work_.kernel == "delta_scan")
      return wait(kSmallStart) + waves(kScanBlocks) * work_.chain * wait(kDeltaScan);
    if (work_.kernel == "delta_finish")
      return wait(kSmallStart) + work_.row_bytes / (kDeltaNorm.value * rate());
    if (work_.kernel != "delta_decode") return wait(kSmallStart) + waves(2) * wait(kDeltaChunk);
    const double more = (work_.chain - 1) * kDeltaRow.value / (1e3 * chip_.ghz);
    const bool pairs = 2 * work_.shared_bytes <= chip_.sm_shared_bytes;
    if (pairs && work_.blocks > chip_.sms) return waves(2) * (wait(kDeltaPair) + more);
    return waves(1) * (wait(kDelta) + more) + work_.other_bytes / rate();
  }

  const KernelWork& work_;
  const ChipRates& chip_;
};

}  // namespace

std::span<const Constant> kernel_constants() { return kAll; }

double kernel_us(const KernelWork& work, const ChipRates& chip) { return Timer(work, chip).us(); }

}  // namespace fourfold::plan
