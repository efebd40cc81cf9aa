#include "cli/load_model.h"

#include <chrono>

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/stream.h"
#include "cli/byte_bar.h"
#include "model/qwen35/forward.h"

namespace fourfold::cli {
namespace {

void require_known(const BackendOptions& options) {
  if (options.backend != "cpu" && options.backend != "reference")
    fail_with_hint(Code::invalid_request, "Known backends: cpu, reference.", "unknown backend '{}'",
                   options.backend);
  if (options.backend == "reference" && options.threads != 0)
    fail(Code::invalid_request, "--threads {}: the reference backend has one thread, always",
         options.threads);
}

// More threads than cores wait for each other; a few more are nobody's business.
void mention_threads(const BackendOptions& options, const Console& console) {
  const auto cores = static_cast<int>(backend::cpu::allowed_cpus().size());
  if (options.threads > 2 * cores)
    notice(
        console,
        fourfold::format("--threads {} on {} cores: they will wait for each other", options.threads, cores),
        options.strict);
}

}  // namespace

OpenModel::OpenModel(std::filesystem::path model_folder)
    : folder(std::move(model_folder)),
      config(checkpoint::read_model_config(folder)),
      defaults(checkpoint::read_generation_defaults(folder)),
      checkpoint(folder),
      bound(checkpoint::bind_model(checkpoint, config)) {}

std::unique_ptr<OpenModel> open_model(const std::string& model, const Console& console, bool strict) {
  auto opened = std::make_unique<OpenModel>(checkpoint::find_model(model, checkpoint::hub_environment()));
  for (const std::string& field : opened->config.unknown_fields)
    notice(console, fourfold::format("config.json: the field '{}' is not known; it was not used", field),
           strict);
  return opened;
}

model::Activations parse_model_activations(std::string_view text) {
  if (text == "auto") return model::Activations::automatic;
  if (text == "f32") return model::Activations::f32;
  if (text == "w4a16") return model::Activations::w4a16;
  if (text == "w4a4") return model::Activations::w4a4;
  fail_with_hint(Code::invalid_request, "Known activations: auto, f32, w4a16, w4a4.",
                 "unknown activations '{}'", text);
}

PreparedModel prepare_model(const OpenModel& model, const BackendOptions& options,
                            const backend::Capacity& capacity, const Console& console) {
  require_known(options);
  const auto start = std::chrono::steady_clock::now();
  backend::Program program =
      model::build_program(model.config, model.bound.weights, parse_model_activations(options.activations));
  ByteBar bar(console, "loading");
  checkpoint::LoadProgress progress(
      checkpoint::stored_bytes(model.bound.weights),
      [&](std::uint64_t bytes_done, std::uint64_t bytes_total) { bar.update(bytes_done, bytes_total); });
  PreparedModel out;
  if (options.backend == "reference")
    out.backend = std::make_unique<backend::ReferenceBackend>();
  else
    out.backend = backend::make_cpu_backend({.threads = options.threads,
                                             .keep_values = options.keep_values,
                                             .checkpoint = &model.checkpoint,
                                             .progress = &progress});
  mention_threads(options, console);
  out.prepared = out.backend->prepare(std::move(program), capacity);
  for (const std::string& text : out.prepared->notices()) notice(console, text, options.strict);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

text::Tokenizer load_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    fail_with_hint(Code::bad_checkpoint,
                   "Give token ids with --ids 1,2,3, or add the model's tokenizer.json.",
                   "{}: there is no tokenizer.json in this folder", folder.string());
  return text::Tokenizer::load(file);
}

}  // namespace fourfold::cli
