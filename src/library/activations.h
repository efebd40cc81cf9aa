// What a model's activations are multiplied as, here: --activations, the chip, and what its FP4 instruction
// was found to do.
#pragma once

#include <string>
#include <string_view>

#include "backend/program.h"
#include "library/backend_options.h"
#include "library/listener.h"
#include "model/builder.h"

namespace fourfold::library {

// auto, f32, w4a16, w4a4-prefill or w4a4.
model::Activations parse_model_activations(std::string_view text);

// What is known of the FP4 instruction on the chip of a backend.
struct Fp4Chip {
  std::string arch;
  bool has_instruction = false;
  std::string refusal;  // why it may not be used though it is there; empty: it may
  std::string notice;   // why its bits are not promised
};

struct ChosenActivations {
  model::Activations activations = model::Activations::automatic;
  std::string why_not_fp4;  // auto on a GPU that multiplies 16-bit activations: why; empty: it does not
  std::string notice;       // about the FP4 instruction that is used
};

// auto on a GPU: FP4 for prompts where the chip has the instruction and it does what it should, else 16 bits.
// What was asked for by name and cannot be done is refused: an emulated instruction serves nobody, unless
// options allow it for a proof.
ChosenActivations choose_activations(const BackendOptions& options, const Fp4Chip& chip);
// By the backend's own chip, which is probed once a process.
ChosenActivations choose_activations(const BackendOptions& options);

// Says what is done instead of what the checkpoint was made for. `wanted` is its program as it asks for.
void mention_activations(const ChosenActivations& chosen, const BackendOptions& options,
                         const backend::Program& program, const backend::Program& wanted,
                         const Listener& listener);

}  // namespace fourfold::library
