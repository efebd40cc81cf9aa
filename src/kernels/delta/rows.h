// The rows of the DeltaNet kernels: a row to a head dimension. Models have heads of 128; 32 and 64 are for
// small ones.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/delta/decode.h"
#include "kernels/delta/prompt_finish.h"
#include "kernels/delta/prompt_prepare.h"
#include "kernels/delta/prompt_scan.h"
#include "kernels/launch/row.h"
#include "kernels/moe/row_list.h"

namespace fourfold::delta {

// Registers are capped for two blocks where shared memory has room for two (heads of 128: Hopper's own
// budget): one loads while the other computes.
template <class Arch, int HeadDim>
inline constexpr int kDecodeBlocks = plan::smem_budget_for(Arch::facts, 2) >=
                                             static_cast<int>(sizeof(DecodeStorage<HeadDim>))
                                         ? 2
                                         : 1;

template <class ArchT, int HeadDim>
struct DecodeRow {
  using Arch = ArchT;
  using Params = DecodeParams;
  using Storage = DecodeStorage<HeadDim>;
  static constexpr int threads = kDecodeThreads;
  static constexpr int blocks_per_sm = kDecodeBlocks<ArchT, HeadDim>;
  static std::string name() { return decode_row(HeadDim); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<DecodeRow>("delta_decode", "decode", "f32");
    facts.m = kChunkRows;
    facts.n = facts.k = HeadDim;
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    decode<HeadDim>(cta, params);
  }
};

enum class PromptKernel { prepare, scan, finish };

template <class ArchT, PromptKernel Kernel, int HeadDim>
struct PromptRow {
  using Arch = ArchT;
  using Params = PromptParams;
  using Storage = std::conditional_t<
      Kernel == PromptKernel::prepare, PrepareStorage<HeadDim>,
      std::conditional_t<Kernel == PromptKernel::scan, ScanStorageOf<ArchT, HeadDim>, kernels::NoStorage>>;
  static constexpr int threads = Kernel == PromptKernel::prepare ? kPrepareThreads
                                 : Kernel == PromptKernel::scan  ? kScanThreads
                                                                 : kFinishThreads;
  // Small heads prepare one block an SM: with the registers of two they would spill.
  static constexpr bool two_blocks =
      plan::smem_budget_for(Arch::facts, 2) >= static_cast<int>(sizeof(Storage)) &&
      (Kernel != PromptKernel::prepare || HeadDim >= 128);
  static constexpr int blocks_per_sm = Kernel == PromptKernel::finish ? 4 : two_blocks ? 2 : 1;
  static constexpr const char* kernel = Kernel == PromptKernel::prepare ? kPrepareKernel
                                        : Kernel == PromptKernel::scan  ? kScanKernel
                                                                        : kFinishKernel;
  static constexpr const char* products = Kernel == PromptKernel::finish ? "" : "mma";
  static std::string name() { return prompt_row(kernel, HeadDim); }
  static plan::RowFacts facts() {
    plan::RowFacts facts = kernels::step_facts<PromptRow>(kernel, "prefill");
    facts.m = kBlockRows;
    facts.n = Kernel == PromptKernel::scan ? kScanValues : HeadDim;
    facts.k = HeadDim;
    if constexpr (Kernel == PromptKernel::scan) facts.stages = std::max(kRowStages, Storage::stages);
    return facts;
  }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    if constexpr (Kernel == PromptKernel::prepare) prompt_prepare<HeadDim>(cta, params);
    if constexpr (Kernel == PromptKernel::scan) prompt_scan<Storage, HeadDim>(cta, params);
    if constexpr (Kernel == PromptKernel::finish) prompt_finish<HeadDim>(cta, params);
  }
};

template <class Arch, int HeadDim>
using RowsOf = moe::RowList<DecodeRow<Arch, HeadDim>, PromptRow<Arch, PromptKernel::prepare, HeadDim>,
                            PromptRow<Arch, PromptKernel::scan, HeadDim>,
                            PromptRow<Arch, PromptKernel::finish, HeadDim>>;

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::Join<RowsOf<Arch, 128>, RowsOf<Arch, 64>, RowsOf<Arch, 32>>;

}  // namespace fourfold::delta
