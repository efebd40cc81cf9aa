// Rows on the simulator.
#pragma once

#include <string>
#include <vector>

#include "kernels/device/sim/cta.h"
#include "kernels/launch/row.h"
#include "kernels/launch/sim_rows.h"
#include "sim/device.h"

namespace fourfold::kernels {

// What reports of the simulator call a row: step kernels differ by row, the others are told by kernel.
template <class Row>
const char* sim_name() {
  static const std::string name = [] {
    const plan::RowFacts facts = Row::facts();
    return kind_of<Row>() == RowKind::step ? facts.row : std::string(facts.kernel);
  }();
  return name.c_str();
}

// One launch on a simulated device, checked against the row's own limits; sms: of the chip, null where every
// block has room.
template <class Row>
sim::LaunchStats run_on_sim(sim::Device& device, int blocks, const typename Row::Params& params,
                            bool dependent = true, const plan::ArchFacts* chip = nullptr, int sms = 0) {
  static_assert(RowFits<Row>::value);
  sim::LaunchConfig config;
  config.blocks = blocks;
  config.threads = threads_of<Row>(params);
  config.shared_bytes = kStorageBytes<Row>;
  config.shared_limit_bytes = Row::Arch::smem_bytes_per_block;
  if constexpr (requires { Row::smem_limit; }) config.shared_limit_bytes = Row::smem_limit;
  if constexpr (requires { Row::launch_registers; }) config.registers_per_thread = Row::launch_registers;
  config.pdl = dependent;
  config.chip = chip;
  config.sms = sms;
  if constexpr (requires { Row::together; }) config.together = Row::together;
  config.name = sim_name<Row>();
  return device.launch(config, [params](sim::Lane& lane) { Row::run(device::SimCta(lane), params); });
}

template <class Row>
SimRow sim_row() {
  return {kind_of<Row>(), Row::facts(), sizeof(typename Row::Params),
          [](SimQueue& queue, int blocks, const void* params) {
            queue.last =
                run_on_sim<Row>(*queue.device, blocks, *static_cast<const typename Row::Params*>(params),
                                queue.dependent, queue.chip, queue.sms);
          }};
}

template <class List>
void add_rows(std::vector<SimRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(sim_row<Row>()); });
}

}  // namespace fourfold::kernels
