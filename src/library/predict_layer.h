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

// What the layer's launches have to do on such a machine; nothing runs. row: of both GEMMs, if not the one
// that choose() has.
std::vector<plan::KernelWork> layer_work(const kernels::Machine& machine, const moe_layer::Request& request,
                                         plan::Routing routing, const std::string& row = "");

// Why the time of such a layer is not predicted there; empty: it is.
std::string why_no_layer_time(const plan::Product& product, const moe_layer::Request& request);
plan::Range predict_layer_us(const plan::Product& product, const kernels::Machine& machine,
                             const moe_layer::Request& request, plan::Routing routing);

}  // namespace fourfold::library
