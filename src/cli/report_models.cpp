#include "cli/report_models.h"

#include <memory>

#include "backend/cuda/cuda.h"
#include "cli/bench_gpu_model.h"
#include "cli/bench_model_command.h"
#include "cli/figures.h"
#include "cli/parse.h"
#include "cli/report_file.h"
#include "cli/report_headline.h"
#include "cli/report_prediction.h"
#include "cli/tune_command.h"
#include "json/parse.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// A model at a published size, as it is timed.
struct ModelCase {
  const char* shape;
  const char* dense;
  double seconds;  // on an H200, with making and loading the weights
  const char* users = "1,2,4,8,16,32,64";
  const char* contexts = "0,4k";
};
constexpr ModelCase kModelCases[]{{"35b", "bf16", 10},
                                  {"35b", "nvfp4", 10},
                                  {"122b", "bf16", 15},
                                  {"122b", "nvfp4", 15},
                                  {"397b-tp4", "bf16", 15},
                                  {"397b", "nvfp4", 40},
                                  {"gpt-oss-120b", "bf16", 10, "1,4,16,64", "0,8k"},
                                  {"glm-4.5-air", "bf16", 10, "1,4,16,64", "0,8k"},
                                  {"minimax-m2", "bf16", 10, "1,4,16,64", "0,8k"},
                                  {"mistral-small-4", "bf16", 10, "1,4,16,64", "0,8k"}};

BenchModelOptions model_options(const ReportOptions& options, const ModelCase& model) {
  BenchModelOptions bench;
  bench.backend = "cuda";
  bench.shape = model.shape;
  bench.dense = model.dense;
  bench.users = options.quick ? "1,8" : model.users;
  bench.contexts = options.quick ? "0" : model.contexts;
  bench.prompt = 2048;
  bench.gpu = options.gpu;
  return bench;
}

// A step's time as measured, with what was predicted for it.
json::array with_predictions(json::array lines, const ReportDevice& device, const ModelCase& model) {
  for (json::value& value : lines) {
    json::object& line = value.as_object();
    const auto number = [&](const char* name) {
      const json::value* found = line.if_contains(name);
      return found == nullptr || !found->is_double() ? 0.0 : found->get_double();
    };
    const json::value* what = line.if_contains("what");
    const Prediction prediction =
        predict_line({.gpu = device.name,
                      .shape = model.shape,
                      .dense = model.dense,
                      .what = what != nullptr && what->is_string() ? what->get_string().c_str() : "",
                      .users = static_cast<int>(number("users")),
                      .context = static_cast<std::int64_t>(number("context"))});
    add_prediction(prediction, "predicted_ms", 1, line);
  }
  return lines;
}

// A model as it is timed on this card: with the users and contexts that there is room for.
struct FittedModel {
  BenchModelOptions bench;
  std::string skipped;   // nothing of it fits
  std::string left_out;  // what of it does not
  std::string users;     // those that fit with every context
};

FittedModel fit_model(const ReportOptions& options, const ReportDevice& device, const ModelCase& model) {
  FittedModel fitted{model_options(options, model), {}, {}, {}};
  const plan::ArchFacts* arch = plan::find_arch(device.arch);
  if (arch == nullptr) {
    fitted.skipped = fourfold::format("{} is not in the table of architectures", device.arch);
    return fitted;
  }
  sim::Device memory;
  const auto machine =
      kernels::make_sim_machine(memory, {.arch = arch, .persistent_blocks = device.sm_count});
  const std::int64_t usable =
      backend::memory_room(device.free_bytes, device.total_bytes, backend::GpuOptions{}.memory_fraction)
          .usable;
  const BenchFit fit = fit_bench_gpu_model(fitted.bench, *machine, usable);
  if (fit.bytes > usable)
    fitted.skipped = fourfold::format(
        "it needs {} and {} of the card's {} may be used", as_bytes(static_cast<double>(fit.bytes)),
        as_bytes(static_cast<double>(usable)), as_bytes(static_cast<double>(device.total_bytes)));
  if (!fit.left_out.empty()) fitted.left_out = "for want of memory: " + fit.left_out;
  for (const int users : fit.users) fitted.users += (fitted.users.empty() ? "" : ",") + std::to_string(users);
  return fitted;
}

// Whether the tuning of this run has succeeded: its file may also be an older one, or another card's.
using Tuned = std::shared_ptr<bool>;

ReportPart model_part(const ReportOptions& options, const ReportDevice& device, const ModelCase& model,
                      const FittedModel& fitted, const Tuned& tuned) {
  const BenchModelOptions& bench = fitted.bench;
  const std::string tuning_file = tuning_path(options, device).string();
  ReportPart out;
  out.name = fourfold::format("bench model {} {}", model.shape, model.dense);
  out.command = fourfold::format(
      "fourfold bench model --backend cuda --shape {} --dense {} --users {} --context {} --prompt {}",
      bench.shape, bench.dense, bench.users, bench.contexts, bench.prompt);
  out.seconds = model.seconds;
  out.skipped = fitted.skipped;
  out.left_out = fitted.left_out;
  if (options.quick)
    out.left_out = "--quick: with 1 and 8 users alone, and without a context" +
                   (fitted.left_out.empty() ? "" : "; " + fitted.left_out);
  out.uses_gpu = true;
  out.run = [asked = bench, tuned, tuning_file](const Console& console, const fs::path& folder) {
    BenchModelOptions timed = asked;
    timed.csv = (folder / kReportTable).string();
    if (*tuned) timed.tuned = tuning_file;  // beside the report it would not be found by itself
    return run_bench_model(timed, console);
  };
  out.keep = [device, model, tuned, tuning_file](const Apart& ended, const fs::path& folder,
                                                 json::object& part) {
    if (*tuned) part["tuned_by"] = tuning_file;
    part["output"] = lines_of(ended.out);
    const json::array lines = with_predictions(rows_of_csv(read_text(folder / kReportTable)), device, model);
    part["headline"] = model_headline(lines);
    part["lines"] = lines;
  };
  out.result_file = fourfold::format("model-{}-{}-{}.csv", device.card(), model.shape, model.dense);
  out.result_source = kReportTable;
  return out;
}

ReportPart tune_part(const TuneCommandOptions& tune, const ReportDevice& device, const Tuned& tuned) {
  ReportPart out;
  out.name = fourfold::format("tune {}", tune.shape);
  out.command = fourfold::format(
      "fourfold tune --backend {} --shape {} --dense {} --users {} --prompt {} --seconds {} --out {}",
      tune.backend, tune.shape, tune.dense, shell_word(tune.users), shell_word(tune.prompts), tune.seconds,
      shell_word(tune.out));
  out.seconds = tune.seconds + 15;
  out.uses_gpu = device.is_gpu();
  out.run = [tune](const Console& console, const fs::path&) { return run_tune(tune, console); };
  out.keep = [path = tune.out, tuned](const Apart& ended, const fs::path&, json::object& part) {
    part["output"] = lines_of(ended.out);
    const json::value file = fourfold::json::parse(read_text(path), path);
    part["headline"] =
        fourfold::format("{} other than the defaults",
                         counted(static_cast<std::int64_t>(file.at("choices").as_array().size()), "choice"));
    part["tuning_file"] = path;
    part["tuning"] = lines_of(read_text(path));
    *tuned = true;
  };
  out.result_file = fourfold::format("tune-{}-{}.txt", device.card(), tune.shape);
  out.result_source = kApartOut;
  out.tuning_file = tune.out;
  return out;
}

// Of the first model that fits, with the users that its bench has room for.
ReportPart gpu_tuning(const ReportOptions& options, const ReportDevice& device, const ModelCase& model,
                      const std::string& users, const Tuned& tuned) {
  TuneCommandOptions tune;
  tune.shape = model.shape;
  tune.dense = model.dense;
  tune.gpu = options.gpu;
  tune.out = tuning_path(options, device).string();
  tune.users = users;
  if (options.quick) {
    tune.prompts = "2048";
    tune.seconds = 30;
  }
  ReportPart part = tune_part(tune, device, tuned);
  if (options.quick) part.left_out = "--quick: at most 8 users, prompts of 2,048 alone, 30 s of measuring";
  return part;
}

}  // namespace

void add_model_parts(const ReportOptions& options, const ReportDevice& device,
                     std::vector<ReportPart>& parts) {
  const auto tuned = std::make_shared<bool>(false);
  std::vector<ReportPart> models;
  const ModelCase* first = nullptr;  // that fits
  std::string users;                 // of it
  for (const ModelCase& model : kModelCases) {
    const FittedModel fitted = fit_model(options, device, model);
    models.push_back(model_part(options, device, model, fitted, tuned));
    if (!fitted.skipped.empty()) continue;
    if (first != nullptr && options.quick)
      models.back().skipped = "--quick: the first model that fits is timed";
    if (first == nullptr) users = fitted.users;
    if (first == nullptr) first = &model;
  }
  parts.push_back(gpu_tuning(options, device, first == nullptr ? kModelCases[0] : *first, users, tuned));
  if (first == nullptr) parts.back().skipped = "no model of the list fits the card";
  if (!options.tune) parts.back().skipped = "--no-tune";
  for (ReportPart& part : models) parts.push_back(std::move(part));
}

void add_simulated_tuning(const ReportOptions& options, const ReportDevice& device,
                          std::vector<ReportPart>& parts) {
  TuneCommandOptions tune;
  tune.backend = "sim";
  tune.shape = "tiny";
  tune.users = "2";
  tune.prompts = "";
  tune.context = 70;
  tune.ops = "attend *";
  tune.out = tuning_path(options, device).string();
  parts.push_back(tune_part(tune, device, std::make_shared<bool>(false)));
  parts.back().seconds = 3;
  // As with `tune`: a file without choices only for those who ask for one.
  if (options.tune_out.empty())
    parts.back().skipped = fourfold::format("{}; --tune-out FILE compares bits", kNoSimulatedTime);
  if (!options.tune) parts.back().skipped = "--no-tune";
}

}  // namespace fourfold::cli
