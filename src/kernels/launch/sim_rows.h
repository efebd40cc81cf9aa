// The table of rows as the simulator runs them: one more chip, with the same lists and the same source.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/launch/row_kind.h"
#include "plan/row_facts.h"
#include "sim/device.h"

namespace fourfold::kernels {

// Where a launch goes and what is remembered of it.
struct SimQueue {
  sim::Device* device = nullptr;
  int persistent_blocks = 3;  // grid of the kernels that walk a work list
  bool dependent = true;
  const plan::ArchFacts* chip = nullptr;  // whose SMs they are; null: every block has room
  int sms = 0;
  sim::LaunchStats last;  // of the newest launch
};

// params are those of the row, checked by size.
struct SimRow {
  RowKind kind;
  plan::RowFacts facts;
  std::size_t params_bytes;
  void (*launch)(SimQueue&, int blocks, const void* params);
};

// Of every chip that is simulated: a machine takes those its chip has.
std::vector<SimRow> sim_rows();

}  // namespace fourfold::kernels
