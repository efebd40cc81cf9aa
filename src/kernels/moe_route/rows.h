// The routing kernels as rows.
#pragma once

#include <string>

#include "base/macros.h"
#include "kernels/launch/row.h"
#include "kernels/moe_route/moe_route.h"

namespace fourfold::moe_route {

// AnyRule: with the code for every rule (route_rule.h).
template <class ArchT, bool AnyRule>
struct TableRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = RouteParams;
  using Storage = TableStorage;
  static constexpr int threads = kSmallThreads;
  static int launch_threads(const Params& params) { return table_threads(params.tokens, params.experts); }
  static std::string name() { return AnyRule ? any_rule_name(kTableRow) : kTableRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<TableRow>(kTableRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    route_table<AnyRule>(cta, params);
  }
};

template <class ArchT, bool AnyRule>
struct ChooseRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = RouteParams;
  using Storage = ChunkStorage;
  static constexpr int threads = kChunkThreads;
  static std::string name() { return AnyRule ? any_rule_name(kChooseRow) : kChooseRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<ChooseRow>(kChooseRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    route_choose<AnyRule>(cta, params);
  }
};

template <class ArchT>
struct ScanRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = RouteParams;
  using Storage = ScanStorage;
  static constexpr int threads = kSmallThreads;
  static std::string name() { return kScanRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<ScanRow>(kScanRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    route_scan(cta, params);
  }
};

template <class ArchT>
struct PlaceRow : kernels::BasicRow {
  using Arch = ArchT;
  using Params = RouteParams;
  using Storage = ChunkStorage;
  static constexpr int threads = kChunkThreads;
  static std::string name() { return kPlaceRow; }
  static plan::RowFacts facts() { return kernels::basic_facts<PlaceRow>(kPlaceRow); }
  template <class Cta>
  static FOURFOLD_DEVICE void run(Cta cta, const Params& params) {
    route_place(cta, params);
  }
};

template <class Chip, class Arch = typename Chip::Own>
using Rows = moe::RowList<TableRow<Arch, false>, TableRow<Arch, true>, ChooseRow<Arch, false>,
                          ChooseRow<Arch, true>, ScanRow<Arch>, PlaceRow<Arch>>;

}  // namespace fourfold::moe_route
