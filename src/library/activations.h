// What a model's activations are multiplied as, here: --activations, the checkpoint, the chip, and what its
// FP4 instruction was found to do.
#pragma once

#include <string>
#include <string_view>

#include "backend/program.h"
#include "kernels/launch/machine.h"
#include "library/backend_options.h"
#include "library/listener.h"
#include "library/open_model.h"
#include "model/builder.h"

namespace fourfold::library {

// auto, f32, w4a16, w4a4-prefill, w4a4 or w8a8.
model::Activations parse_model_activations(std::string_view text);
std::string_view activations_name(model::Activations activations);

// What is known of the FP4 instruction on a chip.
struct Fp4Chip {
  std::string arch = {};
  bool has_instruction = false;
  std::string refusal = {};      // why it may not be used though it is there; empty: it may
  std::string notice = {};       // why its bits are not promised
  bool has_fp8_rows = false;     // kernels that multiply FP8 x FP8 for prompts (w8a8)
  std::string fp8_refusal = {};  // the same two of their instruction
  std::string fp8_notice = {};
};
// One whose instruction, if it has one, does what it should: the simulated ones, and cards that are not here.
Fp4Chip modelled_chip(const plan::ArchFacts& arch);
// Asks the instruction, where there is one; the simulated one is the model itself.
Fp4Chip fp4_chip(kernels::Machine& machine, bool is_simulated);

struct ChosenActivations {
  model::Activations activations = model::Activations::automatic;
  bool emulated = false;    // the chip has no FP4 instruction: a proof
  std::string why_not_fp4;  // auto on a GPU that takes 16-bit activations: why; empty: it does not
  std::string notice;       // about the FP4 or FP8 instruction that is used
};

// auto on a GPU: FP4 for prompts where the chip has the instruction and it does what it should, else 16 bits.
// What was asked for by name and cannot be done is refused: an emulated instruction serves nobody, unless
// options allow it for a proof.
ChosenActivations choose_activations(const BackendOptions& options, const Fp4Chip& chip);
// What auto is on such a chip.
model::Activations served_activations(const plan::ArchFacts& arch);
// By the backend's own chip, which is asked once a process, and only for a model that has input scales. FP4
// by name is refused for one that has none.
ChosenActivations choose_activations(const OpenModel& model, const BackendOptions& options);

// Throws unsupported_model where FP4 was asked for by name and a matrix held in NVFP4 does not get it: one
// that its MLP or layer keeps from it, one that --dense nvfp4 makes. Those in 16 bits (an MTP layer's, often)
// are left as they are.
void require_fp4(const backend::Program& program, const BackendOptions& options);

// Makes what --dense holds in FP8 take FP8 prompt rows, where w8a8 was chosen. Throws unsupported_model where
// no matrix does then.
void take_fp8_rows(backend::Program& program, const BackendOptions& options, model::Activations activations);

// Says what is done instead of what the checkpoint was made for, and where a chip with FP4 gets 16-bit
// activations because matrices in FP4 have no input scale.
void mention_activations(const ChosenActivations& chosen, const OpenModel& model,
                         const BackendOptions& options, const backend::Program& program,
                         const Listener& listener);

}  // namespace fourfold::library
