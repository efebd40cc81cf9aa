// A row: a compiled form of a kernel, as a type.
//
//   struct Row {
//     using Arch = ...;                        // whose shared memory it keeps to
//     using Params = ...;                      // a plain struct of pointers and integers
//     using Storage = ...;                     // its shared memory, one struct; NoStorage where it has none
//     static constexpr int threads, blocks_per_sm;
//     static plan::RowFacts facts();           // its name, unique and the same on every machine ("attend 256
//                                              // bf16"), its sizes; m, n, k where it has them
//     template <class Cta> static FOURFOLD_DEVICE void run(Cta cta, const Params& params);
//     // Where it has them:
//     static constexpr RowKind kind;           // else RowKind::step
//     static constexpr int register_blocks;    // blocks an SM's registers are shared by, else blocks_per_sm
//     static constexpr bool together = true;   // blocks wait for each other: they must all be resident
//     static constexpr bool wants_cache = true;            // leaves the SM its first-level cache
//     static constexpr const char* products;   // a step kernel's tensor-core instruction: "mma", "wgmma"
//     static int launch_threads(const Params& params);     // of one launch, at most `threads`
//   };
//
// A room lists its rows once, as Rows<Chip> in its rows.h; machines compile every list and launch by handle,
// and whoever else asks for rows reads the same lists (docs/kernels.md).
#pragma once

#include <string_view>
#include <type_traits>

#include "kernels/launch/row_kind.h"
#include "kernels/moe/row_list.h"
#include "plan/budget.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

struct NoStorage {};

template <class Row>
inline constexpr int kStorageBytes = std::is_same_v<typename Row::Storage, NoStorage>
                                         ? 0
                                         : static_cast<int>(sizeof(typename Row::Storage));

template <class Row>
constexpr RowKind kind_of() {
  if constexpr (requires { Row::kind; })
    return Row::kind;
  else
    return RowKind::step;
}

// 0: the compiler is not told.
template <class Row>
constexpr int register_blocks() {
  if constexpr (requires { Row::register_blocks; })
    return Row::register_blocks;
  else
    return Row::blocks_per_sm;
}

// What every row has to say; parts can be refined by the room as long as they sum to the total.
template <class Row>
plan::RowFacts step_facts(std::string_view kernel, std::string_view role, std::string_view format = "bf16") {
  constexpr int limit_bytes = plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm);
  constexpr int blocks = register_blocks<Row>() > 0 ? register_blocks<Row>() : 1;
  constexpr int registers = plan::registers_at(Row::Arch::facts, Row::threads, blocks);
  plan::RowFacts facts(kernel, Row::name(), Row::Arch::name, "step", format, role);
  facts.threads = Row::threads;
  facts.math_warps = Row::threads / 32;
  facts.total_bytes = kStorageBytes<Row>;
  if constexpr (kStorageBytes < Row >> 0) facts.parts = {{"storage", kStorageBytes<Row>}};
  facts.limit_bytes = limit_bytes;
  facts.registers = registers;
  facts.blocks_per_sm = Row::blocks_per_sm;
  return facts;
}

// The kernels around the GEMMs: `kernel` is what listeners are told, also where two rows differ in a format.
struct BasicRow {
  static constexpr RowKind kind = RowKind::basic;
  static constexpr int blocks_per_sm = 1, register_blocks = 0;
};
template <class Row>
plan::RowFacts basic_facts(std::string_view kernel, std::string_view format = "any") {
  plan::RowFacts facts = step_facts<Row>(kernel, "any", format);
  facts.path = "basic";
  return facts;
}

// A row that does not fit does not compile; both machines instantiate this.
template <class Row>
struct RowFits {
  static_assert(plan::FitsSharedMemory<kStorageBytes<Row>,
                                       plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm)>::value);
  static_assert(plan::FitsThreads<Row::threads, Row::Arch::facts.threads_per_block_max>::value);
  static_assert(std::is_trivially_copyable_v<typename Row::Params>);
  static constexpr bool value = true;
};

// Threads of one launch.
template <class Row>
int threads_of(const typename Row::Params& params) {
  if constexpr (requires { Row::launch_threads(params); })
    return Row::launch_threads(params);
  else
    return Row::threads;
}

// What listeners, logs and faults call a launch.
inline std::string_view told_name(RowKind kind, const plan::RowFacts& facts) {
  return kind == RowKind::basic ? facts.kernel : std::string_view(facts.row);
}

}  // namespace fourfold::kernels
