#include "cli/diff_backends_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "cli/load_model.h"
#include "cli/parse.h"
#include "evaluate/diff_backends.h"
#include "library/activations.h"

namespace fourfold::cli {
namespace {

std::vector<std::int32_t> tokens_of(const DiffBackendsOptions& options, std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  if (!options.prompt_ids.empty()) {
    for (const int id : parse_counts(options.prompt_ids, "--prompt-ids", 0, static_cast<int>(vocab - 1)))
      tokens.push_back(id);
    return tokens;
  }
  if (options.tokens < 1) fail(Code::invalid_request, "--tokens is {}; 1 at least", options.tokens);
  Random random(options.seed);
  for (int i = 0; i < options.tokens; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab))));
  return tokens;
}

// The backends by name, each opened once.
class Opened {
 public:
  explicit Opened(const DiffBackendsOptions& options) : options_(options) {}

  backend::Backend& get(const std::string& name) {
    auto& [machine, opened] = backends_[name];
    if (opened != nullptr) return *opened;
    if (name == "reference") {
      opened = std::make_unique<backend::ReferenceBackend>();
    } else if (name == "cpu") {
      opened = backend::make_cpu_backend({.threads = options_.threads, .keep_values = true});
    } else if (on_machine(name)) {
      machine = library::open_machine(name, 0);
      opened = backend::make_gpu_backend(*machine, {.keep_values = true});
    } else {
      fail_with_hint(Code::invalid_request, "Known backends: cpu, cuda, sim, reference.",
                     "unknown backend '{}'", name);
    }
    return *opened;
  }

 private:
  struct Entry {
    std::shared_ptr<kernels::Machine> machine;
    std::unique_ptr<backend::Backend> opened;
  };
  const DiffBackendsOptions& options_;
  std::map<std::string, Entry> backends_;
};

void print(const Console& console, const evaluate::LayerDifference& item) {
  char line[200];
  std::snprintf(line, sizeof line, "  %-28s %-10s %12.3e %12.3e %12.3e  %s", item.what.c_str(),
                item.backend.c_str(), item.largest, item.relative, item.bound,
                item.fine() ? "fine" : "BEYOND");
  console.out << line;
  if (item.undecided_count > 0)
    console.out << fourfold::format(", {} of {} rows too close to call", item.undecided_count,
                                    item.undecided_count + item.row_count);
  console.out << "\n" << std::flush;
}

std::string to_json(const std::vector<evaluate::LayerDifference>& found, const DiffBackendsOptions& options,
                    std::string_view activations, bool fine) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("model", options.model).member("backends", options.backends);
  json.member("activations", activations).key("layers").begin_array();
  for (const evaluate::LayerDifference& item : found) {
    json.begin_object().member("what", item.what).member("backend", item.backend);
    json.member("largest", item.largest).member("relative", item.relative).member("bound", item.bound);
    json.member("bounds", item.bounds_largest ? "largest" : "relative").member("rows", item.row_count);
    json.member("undecided", item.undecided_count).member("fine", item.fine()).end_object();
  }
  return json.end_array().member("fine", fine).end_object().finish();
}

}  // namespace

int run_diff_backends(const DiffBackendsOptions& options, const Console& console) {
  const std::vector<std::string> names = split_commas(options.backends);
  if (names.size() < 2)
    fail(Code::invalid_request, "--backends '{}': two at least, commas between them", options.backends);
  const auto model = open_model(options.model, console, options.strict);
  // All of them run what the first GPU among them would.
  library::ChosenActivations chosen{library::parse_model_activations(options.activations), false, {}, {}};
  if (const auto gpu = std::ranges::find_if(names, on_machine); gpu != names.end())
    chosen = library::choose_activations(
        *model, {.backend = *gpu, .activations = options.activations, .allow_emulated = true});
  const evaluate::DiffRequest request{.config = model->config,
                                      .weights = model->bound.weights,
                                      .activations = chosen.activations,
                                      .tokens = tokens_of(options, model->config.vocab_size),
                                      .generated_count = options.generated,
                                      .backends = names,
                                      .by_op = options.by_op};
  Opened opened(options);
  for (const std::string& name : names) opened.get(name);  // an unknown one ends here
  const evaluate::DiffBackends backends{
      [&](const std::string& name, backend::Program program, const backend::Capacity& capacity) {
        return opened.get(name).prepare(std::move(program), capacity);
      },
      [&](backend::Program program, const backend::Capacity& capacity) {
        return opened.get("reference").prepare(std::move(program), capacity);
      }};
  if (!options.json) {
    console.out << fourfold::format(
        "{} layer by layer on inputs of the {} backend: {} tokens, the last {} generated; activations {}{}\n",
        model->folder.string(), names.front(), request.tokens.size(), options.generated,
        library::activations_name(chosen.activations), chosen.emulated ? ", emulated on the GPU" : "");
    char head[160];
    std::snprintf(head, sizeof head, "  %-28s %-10s %12s %12s %12s\n", "what", "backend", "largest",
                  "relative", "bound");
    console.out << head;
  }
  const auto found = evaluate::diff_backends(request, backends, [&](const evaluate::LayerDifference& item) {
    if (!options.json) print(console, item);
  });
  const bool fine = std::all_of(found.begin(), found.end(), [](const auto& item) { return item.fine(); });
  if (options.json)
    console.out << to_json(found, options, library::activations_name(chosen.activations), fine) << "\n";
  else
    console.out << (fine ? "fine: every layer within its bound\n" : "BEYOND the bound: see above\n");
  return fine ? kFine : kMiss;
}

}  // namespace fourfold::cli
