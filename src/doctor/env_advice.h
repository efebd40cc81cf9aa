// `fourfold env`: the environment and the launch line we would use on this machine, each line with its
// reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace fourfold::doctor {

enum class Purpose { vllm, docker, fourfold };

struct AdviceLine {
  std::string text;    // "export OMP_NUM_THREADS=6"
  std::string reason;  // "24 cores for 4 workers"
};

// `gpus` are the GPUs to use, at most as many as the facts have.
std::vector<AdviceLine> env_advice(const Facts& facts, Purpose purpose, int gpus);

// Text that a shell may source: reasons are comments before their line.
std::string advice_text(const std::vector<AdviceLine>& lines);

}  // namespace fourfold::doctor
