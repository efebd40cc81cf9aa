#include "library/activations.h"

#include <algorithm>

#include "backend/cuda/load/held_matrix.h"
#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/verify/probes.h"
#include "library/prepare_model.h"
#include "model/forward.h"
#include "plan/w4a16_price.h"

namespace fourfold::library {
namespace {

using model::Activations;

constexpr std::pair<std::string_view, Activations> kNames[] = {
    {"auto", Activations::automatic}, {"f32", Activations::f32},
    {"w4a16", Activations::w4a16},    {"w4a4-prefill", Activations::w4a4_prefill},
    {"w4a4", Activations::w4a4},      {"w8a8", Activations::w8a8}};

const Fp4Chip& chip_of(const std::string& backend) {
  if (backend == "sim") {
    static const Fp4Chip simulated = modelled_chip(*kernels::SimMachineOptions{}.arch);
    return simulated;
  }
  static const Fp4Chip gpu = fp4_chip(*open_machine("cuda", 0), false);
  return gpu;
}

// Whether prompts could take FP4 activations there, had their matrices input scales.
bool has_fp4_prompts(const std::string& backend) {
  if (backend == "sim") return moe_layer::serves_fp4_prompts(*kernels::SimMachineOptions{}.arch);
  static const bool gpu = moe_layer::serves_fp4_prompts(open_machine("cuda", 0)->arch());
  return gpu;
}

bool is_fp4(Activations activations) {
  return activations == Activations::w4a4 || activations == Activations::w4a4_prefill;
}

std::ptrdiff_t fp4_count(const backend::Program& program) {
  return std::ranges::count_if(program.matrices,
                               [](const backend::MatrixUse& use) { return backend::quantises(use.input); });
}
// Whether --dense makes it NVFP4, without an input scale.
bool is_made_nvfp4(const checkpoint::Matrix& matrix, const BackendOptions& options) {
  return options.dense == "nvfp4" && checkpoint::format_of(matrix) != checkpoint::MatrixFormat::nvfp4 &&
         backend::cuda::record_format(matrix, WeightFormat::nvfp4) == WeightFormat::nvfp4;
}
bool is_stored_fp4(const checkpoint::Matrix& matrix) {
  const checkpoint::MatrixFormat format = checkpoint::format_of(matrix);
  return format == checkpoint::MatrixFormat::nvfp4 || format == checkpoint::MatrixFormat::mxfp4;
}
// FP4 activations wherever the checkpoint has input scales.
backend::Program calibrated_program(const OpenModel& model) {
  return model::build_program(model.config, model.bound.weights, Activations::automatic);
}
std::ptrdiff_t calibrated_count(const OpenModel& model) { return fp4_count(calibrated_program(model)); }

// By matrix: whether it multiplies head by head. Such a one is held in bf16, whatever the checkpoint or
// --dense has, and its inputs with it.
std::vector<bool> by_head(const backend::Program& program) {
  std::vector<bool> out(program.matrices.size());
  for (const std::vector<backend::Op>* ops : {&program.main, &program.draft})
    for (const backend::Op& op : *ops)
      if (const auto* linear = std::get_if<backend::HeadLinear>(&op))
        out[static_cast<std::size_t>(linear->weight.index)] = true;
  return out;
}

// Matrices in FP4 without input scales, on a chip whose prompts would be faster with them.
void mention_unscaled(const backend::Program& calibrated, const BackendOptions& options,
                      const Listener& listener) {
  std::ptrdiff_t made = 0, stored = 0;
  const std::vector<bool> is_by_head = by_head(calibrated);
  for (std::size_t i = 0; i < calibrated.matrices.size(); ++i) {
    const backend::MatrixUse& use = calibrated.matrices[i];
    if (backend::quantises(use.input) || is_by_head[i]) continue;
    made += is_made_nvfp4(*use.matrix, options);
    stored += is_stored_fp4(*use.matrix);
  }
  if (made + stored == 0 || !has_fp4_prompts(options.backend)) return;
  std::string which = fourfold::format("{} matrices stored in FP4", stored);
  if (made > 0)
    which = fourfold::format("--dense nvfp4: {} matrices{}", made,
                             stored > 0 ? fourfold::format(", and {} stored in FP4,", stored) : "");
  listener.fact(
      fourfold::format("{} take 16-bit activations (w4a16), prompts too: they have no input scale, which "
                       "calibration gives. {}",
                       which, plan::w4a16_price()));
}

}  // namespace

Activations parse_model_activations(std::string_view text) {
  for (const auto& [name, activations] : kNames)
    if (text == name) return activations;
  fail_with_hint(Code::invalid_request, "Known activations: auto, f32, w4a16, w4a4-prefill, w4a4, w8a8.",
                 "unknown activations '{}'", text);
}

std::string_view activations_name(Activations activations) {
  for (const auto& [name, known] : kNames)
    if (known == activations) return name;
  fail(Code::internal, "activations without a name: {}", static_cast<int>(activations));
}

Fp4Chip modelled_chip(const plan::ArchFacts& arch) {
  Fp4Chip chip;
  chip.arch = arch.name;
  chip.has_instruction = moe_layer::serves_fp4_prompts(arch);
  chip.has_fp8_rows = moe_layer::has_fp8_prompts(arch);
  return chip;
}

Fp4Chip fp4_chip(kernels::Machine& machine, bool is_simulated) {
  Fp4Chip chip = modelled_chip(machine.arch());
  if (!chip.has_instruction || is_simulated) return chip;
  const std::vector<verify::Probe> probes = verify::run_probes(machine, 1);
  const verify::Arithmetic fp4 = verify::arithmetic_of(probes, "nvfp4"),
                           fp8 = verify::arithmetic_of(probes, "fp8");
  chip.refusal = fp4.refusal;
  chip.notice = fp4.notice;
  chip.fp8_refusal = fp8.refusal;
  chip.fp8_notice = fp8.notice;
  return chip;
}

ChosenActivations choose_activations(const BackendOptions& options, const Fp4Chip& chip) {
  const Activations asked = parse_model_activations(options.activations);
  const bool is_auto = asked == Activations::automatic;
  if (asked == Activations::w8a8 && on_machine(options.backend)) {
    if (!chip.has_fp8_rows || !chip.fp8_refusal.empty())
      fail_with_hint(Code::unsupported_op, "Leave out --activations, or use w4a16.",
                     "--activations w8a8 is refused on this {}: {}", chip.arch,
                     chip.has_fp8_rows ? chip.fp8_refusal : "it has no FP8 x FP8 kernels");
    return {asked, false, {}, chip.fp8_notice};
  }
  if (!on_machine(options.backend) || !(is_auto || is_fp4(asked))) return {asked, false, {}, {}};
  std::string why_not = chip.refusal;
  if (!chip.has_instruction) why_not = fourfold::format("{} has no FP4 tensor cores", chip.arch);
  if (is_auto && !why_not.empty()) return {Activations::w4a16, false, std::move(why_not), {}};
  if (is_auto) return {Activations::w4a4_prefill, false, {}, chip.notice};
  if (!chip.has_instruction && options.allow_emulated) return {asked, true, {}, {}};
  if (!why_not.empty())
    fail_with_hint(Code::unsupported_op, "Leave out --activations, or use w4a16.",
                   "--activations {} is refused on this {}: {}", options.activations, chip.arch, why_not);
  return {asked, false, {}, chip.notice};
}

Activations served_activations(const plan::ArchFacts& arch) {
  return choose_activations({.backend = "cuda"}, modelled_chip(arch)).activations;
}

ChosenActivations choose_activations(const OpenModel& model, const BackendOptions& options) {
  const Activations asked = parse_model_activations(options.activations);
  if (asked == Activations::f32 || asked == Activations::w4a16) return {asked, false, {}, {}};
  if (asked == Activations::w8a8)
    return choose_activations(options, on_machine(options.backend) ? chip_of(options.backend) : Fp4Chip{});
  if (calibrated_count(model) == 0) {
    if (is_fp4(asked))
      fail_with_hint(
          Code::unsupported_model, "Leave out --activations, or use w4a16.",
          "--activations {}: no matrix of this checkpoint has an input scale; it was made for 16-bit "
          "activations",
          options.activations);
    return {on_machine(options.backend) ? Activations::w4a16 : asked, false, {}, {}};
  }
  return choose_activations(options, on_machine(options.backend) ? chip_of(options.backend) : Fp4Chip{});
}

void require_fp4(const backend::Program& program, const BackendOptions& options) {
  const Activations asked = parse_model_activations(options.activations);
  if (!is_fp4(asked)) return;
  const std::vector<bool> is_by_head = by_head(program);
  for (std::size_t i = 0; i < program.matrices.size(); ++i) {
    const backend::MatrixUse& use = program.matrices[i];
    if (is_by_head[i]) continue;
    if (is_made_nvfp4(*use.matrix, options))
      fail_with_hint(
          Code::unsupported_model,
          "--activations auto runs them with 16-bit ones; --dense keep leaves them as they are.",
          "--activations {} with --dense nvfp4: {} and others made NVFP4 at load have no input scale, "
          "which calibration gives",
          options.activations, use.matrix->name);
    if (asked == Activations::w4a4_prefill && !backend::quantises(use.input) &&
        checkpoint::format_of(*use.matrix) == checkpoint::MatrixFormat::nvfp4)
      fail_with_hint(
          Code::unsupported_model, "--activations auto runs such a matrix with 16-bit ones.",
          "--activations w4a4-prefill: {} takes 16-bit activations, because not every matrix of its "
          "MLP, or not every expert of its layer, has an input scale, the same for gate and up",
          use.matrix->name);
  }
}

void take_fp8_rows(backend::Program& program, const BackendOptions& options, Activations activations) {
  if (activations != Activations::w8a8) return;
  const backend::DenseWeights dense = parse_dense_weights(options.dense);
  if (dense)
    model::take_fp8_rows(program, [&](const checkpoint::Matrix& matrix) {
      return backend::cuda::record_format(matrix, dense) == WeightFormat::fp8;
    });
  if (std::ranges::none_of(program.matrices, [](const backend::MatrixUse& use) {
        return use.input == backend::InputFormat::fp8_prefill;
      }))
    fail_with_hint(Code::unsupported_model, "Add --dense fp8, or leave out --activations.",
                   "--activations w8a8: no dense matrix of this checkpoint is in FP8 with a scale for the "
                   "matrix or for each row");
}

void mention_activations(const ChosenActivations& chosen, const OpenModel& model,
                         const BackendOptions& options, const backend::Program& program,
                         const Listener& listener) {
  if (!on_machine(options.backend)) return;
  const std::ptrdiff_t here = fp4_count(program);
  if ((here > 0 || chosen.activations == Activations::w8a8) && !chosen.notice.empty())
    listener.notice(chosen.notice);
  if (here > 0 && chosen.emulated)
    listener.fact("FP4 activations are emulated on this chip, for a proof: times say nothing");
  if (options.activations != "auto") return;
  const backend::Program calibrated = calibrated_program(model);
  mention_unscaled(calibrated, options, listener);
  const std::ptrdiff_t all = fp4_count(calibrated);
  if (!chosen.why_not_fp4.empty())
    listener.notice(
        fourfold::format("the checkpoint was made for FP4 activations (w4a4); this GPU gets 16-bit ones "
                         "(w4a16), which lose nothing: {}. {}",
                         chosen.why_not_fp4, plan::w4a16_price()));
  else if (here < all)
    listener.notice(
        fourfold::format("{} of {} matrices that were made for FP4 activations take 16-bit ones (w4a16), "
                         "which lose nothing: the GPU backend has FP4 for an MLP, or the experts of a layer, "
                         "where all of it has input scales, the same for gate and up",
                         all - here, all));
}

}  // namespace fourfold::library
