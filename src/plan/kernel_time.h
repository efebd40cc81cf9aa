// The time of one launch on one chip, from what it has to do (kernel_work.h) and what the chip can. Every
// constant is in microseconds or clocks of an SM, was found on an H200 and on nothing else, and says how.
//
//   us = start + |memory, issue, chain|      the p-norm of what runs side by side: the longest, and some of
//                                            the others where two are as long
//   memory   bytes over the memory's rate; with fewer blocks than SMs at the rate that those can have
//   issue    clocks of all visits over all SMs
//   chain    what follows one after another on the busiest SM, in waves
//
// docs/decisions/0018 has the fit, the errors and what was pinned.
#pragma once

#include <span>
#include <string_view>

#include "plan/chip_rates.h"
#include "plan/kernel_work.h"

namespace fourfold::plan {

struct Constant {
  std::string_view name;
  double value;
  std::string_view unit;
  Evidence evidence;
  std::string_view meaning;
};
std::span<const Constant> kernel_constants();

double kernel_us(const KernelWork& work, const ChipRates& chip);

}  // namespace fourfold::plan
