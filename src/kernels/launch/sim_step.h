// Step kernels on the simulator.
#pragma once

#include "kernels/device/sim/cta.h"
#include "kernels/launch/sim_rows.h"
#include "kernels/launch/step_kernel.h"
#include "sim/device.h"

namespace fourfold::kernels {

// One launch on a simulated device, checked against the row's own limits; sms: of the chip, null where every
// block has room.
template <class Row>
sim::LaunchStats run_on_sim(sim::Device& device, int blocks, const typename Row::Params& params,
                            bool dependent = true, const plan::ArchFacts* chip = nullptr, int sms = 0) {
  static_assert(StepFits<Row>::value);
  static const std::string name = Row::name();
  sim::LaunchConfig config;
  config.blocks = blocks;
  config.threads = Row::threads;
  config.shared_bytes = kStorageBytes<Row>;
  config.shared_limit_bytes = Row::Arch::smem_bytes_per_block;
  config.pdl = dependent;
  config.chip = chip;
  config.sms = sms;
  if constexpr (requires { Row::together; }) config.together = Row::together;
  config.name = name.c_str();
  return device.launch(config, [params](sim::Lane& lane) { Row::run(device::SimCta(lane), params); });
}

template <class Row>
SimStepRow sim_step_row() {
  return {Row::facts(), sizeof(typename Row::Params), [](SimQueue& queue, int blocks, const void* params) {
            queue.last =
                run_on_sim<Row>(*queue.device, blocks, *static_cast<const typename Row::Params*>(params),
                                queue.dependent, queue.chip, queue.sms);
          }};
}

template <class List>
void add_sim_step_rows(std::vector<SimStepRow>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(sim_step_row<Row>()); });
}

}  // namespace fourfold::kernels
