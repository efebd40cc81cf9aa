#include "library/activations.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/verify/probes.h"
#include "library/prepare_model.h"

namespace fourfold::library {
namespace {

Fp4Chip look_at_gpu() {
  const std::shared_ptr<kernels::Machine> machine = open_machine("cuda", 0);
  Fp4Chip chip{std::string(machine->arch().name), machine->arch().has_fp4_mma, {}, {}};
  if (!chip.has_instruction) return chip;
  const verify::Arithmetic found = verify::arithmetic_of(verify::run_probes(*machine, 1), "nvfp4");
  chip.refusal = found.refusal;
  chip.notice = found.notice;
  return chip;
}

const Fp4Chip& chip_of(const std::string& backend) {
  if (backend == "sim") {  // it is the model
    const plan::ArchFacts& arch = *kernels::SimMachineOptions{}.arch;
    static const Fp4Chip simulated{std::string(arch.name), arch.has_fp4_mma, {}, {}};
    return simulated;
  }
  static const Fp4Chip gpu = look_at_gpu();
  return gpu;
}

std::size_t fp4_count(const backend::Program& program) {
  return static_cast<std::size_t>(std::ranges::count_if(
      program.matrices, [](const backend::MatrixUse& use) { return backend::quantises(use.input); }));
}

}  // namespace

model::Activations parse_model_activations(std::string_view text) {
  if (text == "auto") return model::Activations::automatic;
  if (text == "f32") return model::Activations::f32;
  if (text == "w4a16") return model::Activations::w4a16;
  if (text == "w4a4-prefill") return model::Activations::w4a4_prefill;
  if (text == "w4a4") return model::Activations::w4a4;
  fail_with_hint(Code::invalid_request, "Known activations: auto, f32, w4a16, w4a4-prefill, w4a4.",
                 "unknown activations '{}'", text);
}

ChosenActivations choose_activations(const BackendOptions& options, const Fp4Chip& chip) {
  const model::Activations asked = parse_model_activations(options.activations);
  const bool is_auto = asked == model::Activations::automatic;
  const bool wants_fp4 = asked == model::Activations::w4a4 || asked == model::Activations::w4a4_prefill;
  if (!on_machine(options.backend) || !(is_auto || wants_fp4)) return {asked, {}, {}};
  std::string why_not = chip.refusal;
  if (!chip.has_instruction) why_not = fourfold::format("{} has no FP4 tensor cores", chip.arch);
  if (is_auto && !why_not.empty()) return {model::Activations::w4a16, std::move(why_not), {}};
  if (is_auto) return {model::Activations::w4a4_prefill, {}, chip.notice};
  if (!chip.has_instruction && options.allow_emulated)
    return {
        asked,
        {},
        fourfold::format("{}: FP4 activations are emulated, for a proof; their speed says nothing", why_not)};
  if (!why_not.empty())
    fail_with_hint(Code::unsupported_op, "Leave out --activations, or use w4a16.",
                   "--activations {} is refused on this {}: {}", options.activations, chip.arch, why_not);
  return {asked, {}, chip.notice};
}

ChosenActivations choose_activations(const BackendOptions& options) {
  const bool asks =
      on_machine(options.backend) && options.activations != "w4a16" && options.activations != "f32";
  return choose_activations(options, asks ? chip_of(options.backend) : Fp4Chip{});
}

void mention_activations(const ChosenActivations& chosen, const BackendOptions& options,
                         const backend::Program& program, const backend::Program& wanted,
                         const Listener& listener) {
  if (!chosen.notice.empty()) listener.notice(chosen.notice);
  const std::size_t all = fp4_count(wanted);
  if (options.activations != "auto" || !on_machine(options.backend) || all == 0) return;
  if (!chosen.why_not_fp4.empty())
    listener.notice(fourfold::format(
        "the checkpoint was made for FP4 activations (w4a4); the GPU backend multiplies 16-bit "
        "ones (w4a16), which lose nothing: {}",
        chosen.why_not_fp4));
  else if (const std::size_t here = fp4_count(program); here < all)
    listener.notice(
        fourfold::format("{} of {} matrices that were made for FP4 activations take 16-bit ones (w4a16): the "
                         "GPU backend has FP4 for routed experts",
                         all - here, all));
}

}  // namespace fourfold::library
