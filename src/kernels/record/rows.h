// Packing on the GPU as rows.
#pragma once

#include <string>
#include <type_traits>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/record/pack_dense_kernel.h"
#include "kernels/record/pack_kernel.h"

namespace fourfold::record {

template <class ArchT, class Format>
struct PackRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = PackJob;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kPackThreads;
  static constexpr bool wants_cache = true;
  static std::string name() { return std::is_same_v<Format, Mxfp4> ? kPackMxfp4Row : kPackNvfp4Row; }
  static plan::RowFacts facts() { return kernels::basic_facts<PackRow>("pack", Format::name); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    pack_kernel<Format>(cta, params);
  }
};

template <class ArchT>
struct PackDenseRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = DenseJob;
  using Storage = kernels::NoStorage;
  static constexpr int threads = kPackDenseThreads;
  static constexpr bool wants_cache = true;
  static std::string name() { return kPackDenseRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<PackDenseRow>(kPackDenseRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    pack_dense_kernel(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::RowList<PackRow<Arch, Nvfp4>, PackRow<Arch, Mxfp4>, PackDenseRow<Arch>>;

}  // namespace fourfold::record
