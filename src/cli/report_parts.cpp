#include "cli/report_parts.h"

#include <cctype>
#include <fstream>
#include <sstream>

#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "cli/bench_gpu_model.h"
#include "cli/bench_model_command.h"
#include "cli/bench_moe_command.h"
#include "cli/doctor_command.h"
#include "cli/figures.h"
#include "cli/parse.h"
#include "cli/report_file.h"
#include "cli/report_prediction.h"
#include "cli/tune_command.h"
#include "cli/verify_command.h"
#include "doctor/recording.h"
#include "json/parse.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/sim_machine.h"
#include "library/tuned.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kCsv = "table.csv";
constexpr const char* kNoTime = "the simulator has no time of its own; this needs a GPU";

// A model at a published size, as it is timed.
struct ModelCase {
  const char* shape;
  const char* dense;
  double seconds;  // on an H200, with making and loading the weights
};
constexpr ModelCase kModelCases[]{{"35b", "bf16", 60},    {"35b", "nvfp4", 60},     {"122b", "bf16", 120},
                                  {"122b", "nvfp4", 120}, {"397b-tp4", "bf16", 90}, {"397b", "nvfp4", 300}};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a command printed as JSON, as JSON; where it did not come so far, as lines.
void keep_json(const Apart& ended, const fs::path&, json::object& part) {
  try {
    part["result"] = fourfold::json::parse(ended.out, "the part's output");
  } catch (const Error&) {
    part["output"] = lines_of(ended.out);
  }
}

ReportPart doctor_part(const ReportOptions& options, const ReportDevice& device) {
  const bool quick = options.quick || !device.is_gpu();
  ReportPart out;
  out.name = "doctor";
  out.command = fourfold::format("fourfold doctor --json --record DIR{}", quick ? " --quick" : "");
  out.seconds = quick ? 2.0 : 20.0;
  out.run = [quick](const Console& console, const fs::path& folder) {
    DoctorOptions doctor;
    doctor.json = true;
    doctor.quick = quick;
    doctor.record = folder.string();
    // 1 and 2 speak of the machine: what it found is the result, not a miss of this part.
    return static_cast<int>(run_doctor(doctor, console) == kUsage ? kFailed : kFine);
  };
  out.keep = [](const Apart& ended, const fs::path& folder, json::object& part) {
    keep_json(ended, folder, part);
    part["recording"] = lines_of(read_text(folder / doctor::kRecordingFile));
  };
  return out;
}

ReportPart verify_part(const ReportOptions& options, const ReportDevice& device, bool large) {
  VerifyOptions verify;
  verify.device = device.is_gpu() ? "cuda" : "sim";
  verify.quick = options.quick;
  verify.large = large;
  verify.rows = options.rows;
  verify.gpu = options.gpu;
  verify.json = true;
  const double on_simulator = options.quick ? 60 : 600;
  return {.name = large ? "verify large" : "verify",
          .command = fourfold::format("fourfold verify --device {}{}{}{} --json", verify.device,
                                      verify.quick ? " --quick" : "", large ? " --large" : "",
                                      verify.rows.empty() ? "" : " --rows " + shell_word(verify.rows)),
          .seconds = large             ? 110.0
                     : device.is_gpu() ? 30.0
                                       : on_simulator,
          .skipped = {},
          .run = [verify](const Console& console, const fs::path&) { return run_verify(verify, console); },
          .keep = keep_json,
          .result_file = fourfold::format("verify{}-{}.json", large ? "-large" : "", device.card())};
}

ReportPart moe_part(const ReportOptions& options, const ReportDevice& device, const std::string& shape,
                    const std::string& activations) {
  BenchMoeOptions moe;
  moe.shape = shape;
  moe.activations = activations;
  moe.routing = options.quick ? "uniform" : "all";
  moe.tokens = options.quick ? "1,8,64,1024" : "1,2,4,8,16,32,64,256,1024,8192";
  moe.gpu = options.gpu;
  const bool fp4 = activations != "w4a16";
  moe.command = fourfold::format("fourfold bench moe --shape {} --routing {} --tokens {}{}", shape,
                                 moe.routing, moe.tokens, fp4 ? " --activations " + activations : "");
  ReportPart out;
  out.name = fourfold::format("bench moe {}{}", shape, fp4 ? " " + activations : "");
  out.command = moe.command;
  out.seconds = options.quick ? 10.0 : 60.0;
  if (!device.is_gpu()) out.skipped = kNoTime;
  out.run = [moe](const Console& console, const fs::path& folder) mutable {
    moe.csv = (folder / kCsv).string();
    return run_bench_moe(moe, console);
  };
  out.keep = [](const Apart&, const fs::path& folder, json::object& part) {
    const std::string csv = read_text(folder / kCsv);
    part["about"] = lines_of(csv.substr(0, csv.find("\nshape,")));
    part["lines"] = rows_of_csv(csv);
    part["not_predicted"] = "no time of the MoE layer alone is predicted yet";
  };
  out.result_file = fourfold::format("moe-{}-{}{}.csv", device.card(), shape, fp4 ? "-" + activations : "");
  out.result_source = kCsv;
  return out;
}

fs::path tuning_path(const ReportOptions& options, const ReportDevice& device) {
  if (!options.tune_out.empty()) return options.tune_out;
  const fs::path folder = library::user_tuned_folder();
  return folder.empty() ? fs::path() : folder / library::tuned_file_name(device.chip);
}

BenchModelOptions model_options(const ReportOptions& options, const ModelCase& model) {
  BenchModelOptions bench;
  bench.backend = "cuda";
  bench.shape = model.shape;
  bench.dense = model.dense;
  bench.users = options.quick ? "1,8" : "1,8,64";
  bench.contexts = options.quick ? "0" : "0,4k";
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
    if (prediction.none.empty()) {
      line["predicted_ms"] = {prediction.low_ms, prediction.high_ms};
      line["predicted_by"] = prediction.by;
    } else {
      line["predicted_ms"] = nullptr;
      line["not_predicted"] = prediction.none;
    }
  }
  return lines;
}

// Empty: the bench fits the card as it is now.
std::string why_too_large(const BenchModelOptions& bench, const ReportDevice& device) {
  const plan::ArchFacts* arch = plan::find_arch(device.arch);
  if (arch == nullptr) return fourfold::format("{} is not in the table of architectures", device.arch);
  sim::Device memory;
  const auto machine =
      kernels::make_sim_machine(memory, {.arch = arch, .persistent_blocks = device.sm_count});
  const std::int64_t needed = bench_gpu_model_bytes(bench, *machine);
  const std::int64_t usable =
      backend::memory_room(device.free_bytes, device.total_bytes, backend::GpuOptions{}.memory_fraction)
          .usable;
  if (needed <= usable) return {};
  return fourfold::format("it needs {} and {} of the card's {} may be used",
                          as_bytes(static_cast<double>(needed)), as_bytes(static_cast<double>(usable)),
                          as_bytes(static_cast<double>(device.total_bytes)));
}

// A model as it is timed on this card: with as many users as there is room for.
struct FittedModel {
  BenchModelOptions bench;
  std::string skipped;   // not even one user fits
  std::string left_out;  // the users that do not, and why
};

FittedModel fit_model(const ReportOptions& options, const ReportDevice& device, const ModelCase& model) {
  FittedModel fitted{model_options(options, model), {}, {}};
  const std::string all = fitted.bench.users;
  const std::string why = why_too_large(fitted.bench, device);
  fitted.skipped = why;
  for (const char* users : {"1,8", "1"}) {
    if (fitted.skipped.empty()) break;
    fitted.bench.users = users;
    fitted.skipped = why_too_large(fitted.bench, device);
  }
  if (fitted.skipped.empty() && !why.empty())
    fitted.left_out =
        fourfold::format("users {} were asked for and {} are timed: {}", all, fitted.bench.users, why);
  return fitted;
}

ReportPart model_part(const ReportOptions& options, const ReportDevice& device, const ModelCase& model,
                      const FittedModel& fitted) {
  const BenchModelOptions& bench = fitted.bench;
  ReportPart out;
  out.name = fourfold::format("bench model {} {}", model.shape, model.dense);
  out.command = fourfold::format(
      "fourfold bench model --backend cuda --shape {} --dense {} --users {} --context {} --prompt {}",
      bench.shape, bench.dense, bench.users, bench.contexts, bench.prompt);
  out.seconds = model.seconds;
  out.skipped = fitted.skipped;
  out.run = [asked = bench, options](const Console& console, const fs::path& folder) {
    BenchModelOptions timed = asked;
    timed.csv = (folder / kCsv).string();
    // A file somewhere else would not be found by itself.
    if (options.tune && fs::exists(options.tune_out)) timed.tuned = options.tune_out;
    return run_bench_model(timed, console);
  };
  out.keep = [device, model, less = fitted.left_out](const Apart& ended, const fs::path& folder,
                                                     json::object& part) {
    if (!less.empty()) part["left_out"] = less;
    part["output"] = lines_of(ended.out);
    part["lines"] = with_predictions(rows_of_csv(read_text(folder / kCsv)), device, model);
  };
  out.result_file = fourfold::format("model-{}-{}-{}.csv", device.card(), model.shape, model.dense);
  out.result_source = kCsv;
  return out;
}

ReportPart tune_part(const ReportOptions& options, const ReportDevice& device, const ModelCase& model,
                     const std::string& users) {
  TuneCommandOptions tune;
  tune.shape = model.shape;
  tune.dense = model.dense;
  tune.gpu = options.gpu;
  tune.out = options.tune_out;
  // As many as the bench has room for.
  if (users == "1,8") tune.users = "1,2,4,8";
  if (users == "1") tune.users = "1";
  ReportPart out;
  out.name = fourfold::format("tune {}", model.shape);
  out.command = fourfold::format("fourfold tune --shape {} --dense {} --users {}", model.shape, model.dense,
                                 tune.users);
  out.seconds = model.seconds + tune.seconds;
  if (!device.is_gpu()) out.skipped = kNoTime;
  out.run = [tune](const Console& console, const fs::path&) { return run_tune(tune, console); };
  out.keep = [path = tuning_path(options, device)](const Apart& ended, const fs::path&, json::object& part) {
    part["output"] = lines_of(ended.out);
    part["tuning_file"] = lines_of(read_text(path));
  };
  out.result_file = fourfold::format("tune-{}-{}.txt", device.card(), model.shape);
  return out;
}

ReportPart cpu_part(const ReportOptions& options) {
  BenchModelOptions bench;
  bench.shape = options.quick ? "tiny" : "35b";
  bench.prompt = options.quick ? 16 : 256;
  bench.tokens = options.quick ? 4 : 32;
  return {.name = fourfold::format("bench model {} on the CPU", bench.shape),
          .command = fourfold::format("fourfold bench model --backend cpu --shape {} --prompt {} --tokens {}",
                                      bench.shape, bench.prompt, bench.tokens),
          .seconds = options.quick ? 5.0 : 120.0,
          .skipped = {},
          .run = [bench](const Console& console, const fs::path&) { return run_bench_model(bench, console); },
          .keep = {}};
}

void add_models(const ReportOptions& options, const ReportDevice& device, std::vector<ReportPart>& parts) {
  std::vector<ReportPart> models;
  const ModelCase* first = nullptr;  // that fits
  std::string users;                 // of it
  for (const ModelCase& model : kModelCases) {
    const FittedModel fitted = fit_model(options, device, model);
    models.push_back(model_part(options, device, model, fitted));
    if (!fitted.skipped.empty()) continue;
    if (first != nullptr && options.quick) models.back().skipped = "--quick times the first model that fits";
    if (first == nullptr) users = fitted.bench.users;
    if (first == nullptr) first = &model;
  }
  if (options.tune) {
    parts.push_back(tune_part(options, device, first == nullptr ? kModelCases[0] : *first, users));
    if (first == nullptr) parts.back().skipped = "no model of the list fits the card";
  }
  for (ReportPart& part : models) parts.push_back(std::move(part));
}

}  // namespace

std::string ReportDevice::card() const {
  std::string out;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  constexpr std::string_view maker = "nvidia-";
  return out.starts_with(maker) ? out.substr(maker.size()) : out;
}

int tell_device(int index, const Console& console) {
  if (const std::string why = kernels::why_no_gpu(); !why.empty()) {
    console.err << why << "\n";
    return kMiss;
  }
  const auto gpu = kernels::open_gpu(index);
  const kernels::GpuState state = gpu->state();
  const kernels::GpuMemory memory = kernels::gpu_memory(index);
  JsonWriter json;
  json.begin_object()
      .member("name", state.name)
      .member("chip", gpu->machine().description())
      .member("arch", gpu->machine().arch().name)
      .member("sm_count", gpu->machine().sm_count())
      .member("free_bytes", memory.free)
      .member("total_bytes", memory.total)
      .member("driver", state.driver)
      .member("sm_clock_mhz", state.sm_clock_mhz)
      .member("memory_clock_mhz", state.memory_clock_mhz)
      .end_object();
  console.out << json.finish();
  return kFine;
}

ReportDevice device_of(const std::string& text) {
  const json::value value = fourfold::json::parse(text, "the device");
  const json::object& told = value.as_object();
  const auto words = [&](const char* name) { return std::string(told.at(name).as_string()); };
  const auto number = [&](const char* name) { return told.at(name).to_number<std::int64_t>(); };
  return {.name = words("name"),
          .chip = words("chip"),
          .arch = words("arch"),
          .sm_count = static_cast<int>(number("sm_count")),
          .free_bytes = number("free_bytes"),
          .total_bytes = number("total_bytes"),
          .driver = words("driver"),
          .sm_clock_mhz = static_cast<int>(number("sm_clock_mhz")),
          .memory_clock_mhz = static_cast<int>(number("memory_clock_mhz")),
          .unusable = {}};
}

std::vector<ReportPart> report_parts(const ReportOptions& options, const ReportDevice& device) {
  std::vector<ReportPart> parts{doctor_part(options, device)};
  if (!device.unusable.empty()) {
    parts.push_back(verify_part(options, device, false));
    parts.back().skipped = device.unusable;
    return parts;
  }
  parts.push_back(verify_part(options, device, false));
  if (!device.is_gpu()) {
    parts.push_back(moe_part(options, device, "35b", "w4a16"));
    if (options.tune) parts.push_back(tune_part(options, device, kModelCases[0], {}));
    parts.push_back(cpu_part(options));
    return parts;
  }
  if (!options.quick) parts.push_back(verify_part(options, device, true));
  for (const char* shape : {"35b", "122b", "397b-tp4", "397b"}) {
    if (options.quick && std::string_view(shape) != "35b") continue;
    parts.push_back(moe_part(options, device, shape, "w4a16"));
    // Emulated, its times say nothing.
    const plan::ArchFacts* arch = plan::find_arch(device.arch);
    if (arch != nullptr && arch->has_fp4_mma) parts.push_back(moe_part(options, device, shape, "w4a4"));
  }
  add_models(options, device, parts);
  return parts;
}

}  // namespace fourfold::cli
