// The predicted time of a MoE layer alone, as `bench moe` times it, on a GPU that need not be there.
#pragma once

#include <string>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/moe_layer/choose.h"
#include "plan/chip_rates.h"
#include "plan/expected_tiles.h"
#include "plan/kernel_work.h"

namespace fourfold::library {

// What the layer's launches have to do on such a machine; nothing runs.
std::vector<plan::KernelWork> layer_work(const kernels::Machine& machine, const moe_layer::Request& request,
                                         plan::Routing routing);

// Why the time of such a layer is not predicted there; empty: it is. The model was held against W4A16 on the
// H200 alone, where prompts run by wgmma.
std::string why_no_layer_time(const plan::Product& product, const moe_layer::Request& request);
plan::Range predict_layer_us(const plan::Product& product, const kernels::Machine& machine,
                             const moe_layer::Request& request, plan::Routing routing);

}  // namespace fourfold::library
