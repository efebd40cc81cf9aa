// Which rows could run a layer or one grouped GEMM besides those that choose() takes. Rows of one role and
// the same operands give the same bits, so any of them may be taken; the others are refused with the reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/launch/machine.h"
#include "kernels/moe_layer/choose.h"

namespace fourfold::moe_layer {

// A layer with rows by name (one row for both GEMMs where `down_row` is empty), or the reason why not.
Choice choice_of(const kernels::Machine& machine, const Request& request, std::string_view gate_up_row,
                 std::string_view down_row);
// The same for one grouped GEMM without router.
Choice gemm_choice_of(const kernels::Machine& machine, const Request& request, std::string_view row);

// Everything the machine has for the request's weights and role.
std::vector<Choice> all_choices(const kernels::Machine& machine, const Request& request);
std::vector<Choice> all_gemm_choices(const kernels::Machine& machine, const Request& request);

}  // namespace fourfold::moe_layer
