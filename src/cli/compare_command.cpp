#include "cli/compare_command.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/json_writer.h"
#include "cli/load_model.h"
#include "cli/terminal_text.h"
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "library/activations.h"
#include "model/forward.h"

namespace fourfold::cli {
namespace {

std::ptrdiff_t fp4_inputs(const OpenModel& model, model::Activations activations) {
  const backend::Program program = model::build_program(model.config, model.bound.weights, activations);
  return std::ranges::count_if(program.matrices,
                               [](const backend::MatrixUse& use) { return backend::quantises(use.input); });
}

std::vector<std::string> formats_of(const CompareOptions& options, const OpenModel& model) {
  if (options.activations != "all") return {options.activations};
  const std::ptrdiff_t all = fp4_inputs(model, model::Activations::automatic);
  if (!on_machine(options.backend)) {
    std::vector<std::string> formats{"f32", "w4a16"};
    if (all > 0) formats.push_back("w4a4");
    return formats;
  }
  // What its kernels have: 16-bit inputs everywhere, FP4 ones where an MLP or a layer's experts all have
  // scales; by name only where that is all of them.
  std::vector<std::string> formats{"w4a16"};
  const std::ptrdiff_t some = fp4_inputs(model, model::Activations::w4a4_prefill);
  if (some > 0) formats.push_back(some == all ? "w4a4-prefill" : "auto");
  if (some > 0 && some == all) formats.push_back("w4a4");
  return formats;
}

// FP4 activations that this GPU does not have are no part of "all", which is said.
std::vector<std::string> possible_formats(const CompareOptions& options, const OpenModel& model,
                                          const Console& console) {
  std::vector<std::string> formats = formats_of(options, model);
  if (options.activations != "all" || !on_machine(options.backend)) return formats;
  std::erase_if(formats, [&](const std::string& activations) {
    try {
      const library::ChosenActivations chosen = library::choose_activations(
          model, {.backend = options.backend, .activations = activations, .allow_emulated = true});
      return activations == "auto" && chosen.activations == model::Activations::w4a16;  // compared already
    } catch (const Error& error) {
      if (error.code() != Code::unsupported_op) throw;
      console.err << fourfold::format("fourfold: not compared: {}\n", error.what());
      return true;
    }
  });
  return formats;
}

// Where the bounds of a run come from, in one line.
std::string derivation(const evaluate::Comparison& result) {
  if (result.noise_bf16 == 0 && result.noise_nvfp4 == 0 && result.noise_fp8 == 0 && result.noise_kv == 0)
    return fourfold::format("bound: {}, the same arithmetic in another order", evaluate::kExactBound);
  std::string text;
  const auto add = [&](double noise, const char* what, const char* format) {
    if (noise > 0)
      text += fourfold::format("{} {} {} ({})", text.empty() ? "bound:" : ",", what, noise, format);
  };
  add(result.noise_bf16, "inputs of matrices are off by", "bf16");
  add(result.noise_nvfp4, "inputs of matrices are off by", "NVFP4");
  add(result.noise_fp8, "inputs of matrices are off by", "FP8");
  add(result.noise_kv, "keys and values by", "fp8");
  return text + fourfold::format(
                    " of themselves; {} times the largest and {} times the typical difference that {}"
                    " runs with random errors of that size showed",
                    evaluate::kLargestFactor, evaluate::kTypicalFactor, evaluate::kNoiseRuns);
}

std::string list(const std::vector<std::int32_t>& experts) {
  std::string text;
  for (const std::int32_t expert : experts) text += fourfold::format("{}{}", text.empty() ? "" : "+", expert);
  return text;
}

std::string in_words(const evaluate::RouterTie& tie) {
  return fourfold::format(
      "too close to call: expert {} is {} ahead of {} in f32, and the errors move that by {};"
      " held against a reference that takes {}",
      list(tie.leave), tie.margin, list(tie.come), tie.moved, list(tie.come));
}

std::string printed(const std::string& activations, const evaluate::Comparison& result) {
  std::ostringstream out;
  out << "\nactivations " << activations << "; " << derivation(result) << "\n";
  char line[160];
  std::snprintf(line, sizeof line, "  %-8s %-14s %12s %12s %12s %12s\n", "prompt", "what", "largest", "bound",
                "typical", "bound");
  out << line;
  for (const evaluate::NumberDifference& item : result.numbers) {
    std::snprintf(line, sizeof line, "  %-8s %-14s %12.3e %12.3e %12.3e %12.3e  %s\n", item.prompt.c_str(),
                  item.what.c_str(), item.largest, item.largest_bound, item.typical, item.typical_bound,
                  item.fine() ? "fine" : "BEYOND");
    out << line;
  }
  for (const evaluate::TokenDifference& item : result.tokens) {
    out << fourfold::format("  {} {}: {} of {} tokens the same", item.prompt, item.what, item.same,
                            item.count);
    if (item.undecided > 0) out << fourfold::format(", {} too close to call", item.undecided);
    out << (item.fine() ? "  fine\n" : "  WRONG\n");
  }
  for (const evaluate::TurnedChoice& choice : result.turned)
    out << fourfold::format("  {} {}, position {}: {}\n", choice.prompt, choice.tie.router,
                            choice.tie.position, in_words(choice.tie));
  if (!result.hidden_compared) out << "  hidden states: not compared, this backend keeps none\n";
  if (!result.mtp_compared) out << "  MTP: not compared, the model or the file has none\n";
  return out.str();
}

void write(const std::string& activations, const library::ChosenActivations& used,
           const evaluate::Comparison& result, JsonWriter& json) {
  json.begin_object().member("activations", activations);
  json.member("activations_used", library::activations_name(used.activations));
  json.member("emulated", used.emulated).member("fine", result.fine());
  json.member("bound", derivation(result)).member("hidden_compared", result.hidden_compared);
  json.member("mtp_compared", result.mtp_compared).key("numbers").begin_array();
  for (const evaluate::NumberDifference& item : result.numbers) {
    json.begin_object().member("prompt", item.prompt).member("what", item.what);
    json.member("largest", item.largest).member("largest_bound", item.largest_bound);
    json.member("typical", item.typical)
        .member("typical_bound", item.typical_bound)
        .member("fine", item.fine())
        .end_object();
  }
  json.end_array().key("tokens").begin_array();
  for (const evaluate::TokenDifference& item : result.tokens) {
    json.begin_object().member("prompt", item.prompt).member("what", item.what);
    json.member("count", item.count).member("same", item.same).member("undecided", item.undecided);
    json.member("fine", item.fine()).end_object();
  }
  json.end_array().key("routers_turned").begin_array();
  for (const auto& [prompt, tie] : result.turned) {
    json.begin_object()
        .member("prompt", prompt)
        .member("router", tie.router)
        .member("position", tie.position);
    json.member("leaves", list(tie.leave)).member("comes", list(tie.come));
    json.member("margin", tie.margin).member("moved", tie.moved).end_object();
  }
  json.end_array().end_object();
}

}  // namespace

int run_compare(const CompareOptions& options, const Console& console) {
  const auto model = open_model(options.model, console, options.strict);
  const evaluate::ReferenceFile reference(
      options.reference, model::build_program(model->config, model->bound.weights, model::Activations::f32));
  bool fine = true;
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("model", model->folder.string()).member("reference", options.reference);
  json.member("backend", options.backend).member("ranks", options.tp).key("runs").begin_array();
  if (!options.json)
    show(console,
         fourfold::format("{} against {} on the {} backend{}\n", model->folder.string(), options.reference,
                          options.backend, options.tp > 1 ? fourfold::format(", {} ranks", options.tp) : ""));
  for (const std::string& activations : possible_formats(options, *model, console)) {
    const PreparedModel prepared =
        prepare_model(*model,
                      {.backend = options.backend,
                       .activations = activations,
                       .allow_emulated = true,
                       .kv = options.kv,
                       .threads = options.threads,
                       .strict = options.strict,
                       .tuned = options.tuned,
                       .keep_values = true,
                       .dense = options.dense,
                       .cache = options.cache,
                       .rebuild_cache = options.rebuild_cache,
                       .tp = options.tp,
                       .experts = options.experts},
                      evaluate::trace_capacity(reference.prompts(), options.step_rows), console);
    const evaluate::Comparison result = options.tp > 1
                                            ? evaluate::compare(*prepared, prepared.whole, reference)
                                            : evaluate::compare(*prepared, reference);
    fine = fine && result.fine();
    if (options.json)
      write(activations, prepared.activations, result, json);
    else
      show(console, printed(activations, result));
  }
  json.end_array().member("fine", fine).end_object();
  if (options.json)
    console.out << json.finish() << "\n";
  else
    console.out << (fine ? "\nfine: everything within its bound\n" : "\nBEYOND the bound: see above\n");
  return fine ? kFine : kMiss;
}

}  // namespace fourfold::cli
