// A step kernel: one of the kernels of a model's step besides the MoE layer's (dense matrices, norms,
// attention, DeltaNet, sampling). Each compiled form is a type, a row:
//
//   struct Row {
//     using Arch = ...;                        // whose shared memory it keeps to
//     using Params = ...;                      // a plain struct of pointers and integers
//     using Storage = ...;                     // its shared memory, one struct; NoStorage where it has none
//     static constexpr int threads, blocks_per_sm;
//     static std::string name();               // unique, the same on every machine: "attend 256 bf16"
//     static plan::RowFacts facts();           // step_facts<Row>(kernel, role), with m, n, k where it has
//     them
//     static constexpr bool together = true;   // where blocks wait for each other: they must all be resident
//     template <class Cta> static FOURFOLD_DEVICE void run(Cta cta, const Params& params);
//   };
//
// Rooms list their rows as moe::RowList; machines compile every list and launch by handle.
#pragma once

#include <string_view>
#include <type_traits>

#include "kernels/moe/row_list.h"
#include "plan/budget.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

struct NoStorage {};

template <class Row>
inline constexpr int kStorageBytes = std::is_same_v<typename Row::Storage, NoStorage>
                                         ? 0
                                         : static_cast<int>(sizeof(typename Row::Storage));

// Blocks an SM's registers are shared by: blocks_per_sm, or a row's own register_blocks where it leaves room
// for the blocks of the next kernel.
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
  constexpr int registers = plan::registers_at(Row::Arch::facts, Row::threads, register_blocks<Row>());
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

// A row that does not fit does not compile; both machines instantiate this.
template <class Row>
struct StepFits {
  static_assert(plan::FitsSharedMemory<kStorageBytes<Row>,
                                       plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm)>::value);
  static_assert(plan::FitsThreads<Row::threads, Row::Arch::facts.threads_per_block_max>::value);
  static_assert(std::is_trivially_copyable_v<typename Row::Params>);
  static constexpr bool value = true;
};

}  // namespace fourfold::kernels
