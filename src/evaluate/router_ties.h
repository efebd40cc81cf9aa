// Choices of routers that rounding leaves open: two experts are nearly level, inputs that are off by a
// format's error choose the other one, and either is right. What comes behind such a choice jumps, which is
// no error, and a bound wide enough for the jump would let errors pass. So these choices are found, by the
// errors that bounds are derived from (input_noise.h), and the reference can be run with any of them turned.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/reference/reference.h"
#include "evaluate/trace.h"

namespace fourfold::evaluate {

struct RouterChoice {
  backend::TopKExperts op;
  std::int64_t position = 0;
  std::vector<float> keys;  // backend/reference/experts.h
  std::vector<std::int32_t> experts;
};

// A run of the reference backend along a prompt, with its choices in the order they are made, which is the
// same in every run of a program.
struct ReferenceRun {
  Trace trace;
  std::vector<RouterChoice> choices;
};
// By number of the choice: the experts it takes, whatever its keys. Others are made as they come.
using HeldChoices = std::map<std::size_t, std::vector<std::int32_t>>;
ReferenceRun run_reference(const backend::Program& program, const backend::Capacity& capacity,
                           const PromptReference& prompt, const HeldChoices& held);

// A choice, and what might have been chosen as well.
struct RouterTie {
  std::size_t choice = 0;  // its number in the run
  backend::ValueId logits;
  std::string router;  // their name, "layers.1.mlp.router"
  std::int64_t position = 0;
  std::vector<std::int32_t> experts;      // the other choice, all of it
  std::vector<std::int32_t> leave, come;  // what it lacks and has beside the run's own
  double margin = 0;                      // keys of those that leave minus keys of those that come
  double moved = 0;                       // the most that errors moved the margin
};

// The choices of a run in f32 that would be others if their keys were off by kLargestFactor times what errors
// of the program's activation format did to them, either way. Closest to call first. The kNoiseRuns runs with
// errors are held to the run's choices, so that one that flips does not shake those behind it.
std::vector<RouterTie> find_ties(const backend::Program& program, const backend::Capacity& capacity,
                                 const PromptReference& prompt, const ReferenceRun& clean);

}  // namespace fourfold::evaluate
