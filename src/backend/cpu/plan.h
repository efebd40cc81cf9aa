// What is decided about a program when it is prepared: which matrices are multiplied together because they
// read the same value, and where each value lies. Values whose lives do not meet share memory.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/program.h"

namespace fourfold::backend::cpu {

struct Step {
  Op op;                        // when linears is empty
  std::vector<Linear> linears;  // all of one input
};

// Linears are drawn forward to the first one that reads the same value: the value is made into an input once,
// and all threads find enough rows to share. Values are written once, so nothing else changes.
std::vector<Step> plan_steps(const Program& program, Pass pass);

struct ValuePlaces {
  static constexpr std::int32_t kCaller = -1;  // the logits: written where the caller wants them
  static constexpr std::int32_t kNone = -2;    // of a pass that does not exist
  std::vector<std::int32_t> buffer;            // by value
  std::vector<std::int64_t> buffer_columns;    // by buffer: of its widest value
};

// Apart: every value in memory of its own, so that all can be looked at afterwards.
enum class Sharing { shared, apart };
ValuePlaces place_values(const Program& program, const std::vector<Step>& main,
                         const std::vector<Step>& draft, Sharing sharing);

}  // namespace fourfold::backend::cpu
