#include "cli/report_parts.h"

#include "base/error.h"
#include "cli/bench_model_command.h"
#include "cli/bench_moe_command.h"
#include "cli/doctor_command.h"
#include "cli/parse.h"
#include "cli/report_file.h"
#include "cli/report_headline.h"
#include "cli/report_models.h"
#include "cli/report_prediction.h"
#include "cli/report_verify.h"
#include "cli/verify_command.h"
#include "doctor/recording.h"
#include "json/parse.h"
#include "library/tuned.h"
#include "plan/arch.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kLeftOutByQuick = "--quick leaves it out";

ReportPart doctor_part(const ReportOptions& options, const ReportDevice& device) {
  const bool quick = options.quick || !device.is_gpu();
  ReportPart out;
  out.name = "doctor";
  out.command = fourfold::format("fourfold doctor --json --record DIR{}", quick ? " --quick" : "");
  out.seconds = quick ? 2.0 : 20.0;
  if (options.quick) out.left_out = "--quick: memory and copies between GPUs are not measured";
  out.run = [quick](const Console& console, const fs::path& folder) {
    DoctorOptions doctor;
    doctor.json = true;
    doctor.quick = quick;
    doctor.record = folder.string();
    // 1 and 2 speak of the machine: what it found is the result, not a miss of this part.
    return static_cast<int>(run_doctor(doctor, console) == kUsage ? kFailed : kFine);
  };
  out.keep = [](const Apart& ended, const fs::path& folder, json::object& part) {
    const json::value verdict = fourfold::json::parse(ended.out, "the doctor's verdict");
    part["headline"] = verdict.at("verdict");
    part["result"] = verdict;
    part["recording"] = lines_of(read_text(folder / doctor::kRecordingFile));
  };
  return out;
}

ReportPart verify_part(const ReportOptions& options, const ReportDevice& device, bool large) {
  VerifyOptions verify;
  verify.device = device.is_gpu() ? "cuda" : "sim";
  verify.quick = options.quick && !large;
  verify.large = large;
  verify.rows = options.rows;
  verify.gpu = options.gpu;
  verify.json = true;
  ReportPart out;
  out.name = large ? "verify large" : "verify";
  out.command = fourfold::format("fourfold verify --device {}{}{}{} --json", verify.device,
                                 verify.quick ? " --quick" : "", large ? " --large" : "",
                                 verify.rows.empty() ? "" : " --rows " + shell_word(verify.rows));
  const double on_gpu = large ? 90 : options.quick ? 15 : 30, on_simulator = options.quick ? 60 : 600;
  out.seconds = device.is_gpu() ? on_gpu : on_simulator;
  if (verify.quick) out.left_out = "--quick: one proof of each row and operation, not four";
  if (!options.rows.empty()) out.left_out += (out.left_out.empty() ? "" : "; ") + ("--rows " + options.rows);
  if (large && options.quick) out.skipped = kLeftOutByQuick;
  out.uses_gpu = device.is_gpu();
  out.run = [verify](const Console& console, const fs::path&) { return run_verify(verify, console); };
  out.keep = [](const Apart& ended, const fs::path&, json::object& part) {
    const json::object summary = summarised_verify(fourfold::json::parse(ended.out, "the proof").as_object());
    part["headline"] = verify_headline(summary);
    part["result"] = summary;
  };
  out.result_file = fourfold::format("verify{}-{}.json", large ? "-large" : "", device.card());
  return out;
}

// A layer's time as measured, with what was predicted for it.
json::array with_predictions(json::array lines, const ReportDevice& device, const std::string& activations) {
  std::vector<PredictedLayer> layers;
  for (const json::value& value : lines) {
    const auto words = [&](const char* name) { return std::string(value.at(name).as_string()); };
    layers.push_back({words("shape"), words("format"), activations, words("routing"), words("role"),
                      static_cast<int>(value.at("tokens").as_double())});
  }
  const std::vector<Prediction> predictions = predict_layers(device, layers);
  for (std::size_t i = 0; i < lines.size(); ++i)
    add_prediction(predictions[i], "predicted_us", 1e3, lines[i].as_object());
  return lines;
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
  out.seconds = options.quick ? 5.0 : 15.0;
  if (options.quick) out.left_out = "--quick: uniform routing alone, 4 of 10 numbers of tokens";
  if (options.quick && shape != "35b") out.skipped = kLeftOutByQuick;
  if (!device.is_gpu()) out.skipped = kNoSimulatedTime;
  out.uses_gpu = true;
  out.run = [moe](const Console& console, const fs::path& folder) mutable {
    moe.csv = (folder / kReportTable).string();
    return run_bench_moe(moe, console);
  };
  out.keep = [device, activations](const Apart&, const fs::path& folder, json::object& part) {
    const std::string csv = read_text(folder / kReportTable);
    part["about"] = lines_of(csv.substr(0, csv.find("\nshape,")));
    const json::array lines = with_predictions(rows_of_csv(csv), device, activations);
    part["headline"] = layer_headline(lines);
    part["lines"] = lines;
  };
  out.result_file = fourfold::format("moe-{}-{}{}.csv", device.card(), shape, fp4 ? "-" + activations : "");
  out.result_source = kReportTable;
  return out;
}

ReportPart cpu_part(const ReportOptions& options) {
  BenchModelOptions bench;
  bench.shape = options.quick ? "tiny" : "35b";
  bench.prompt = options.quick ? 16 : 256;
  bench.tokens = options.quick ? 4 : 32;
  ReportPart out;
  out.name = fourfold::format("bench model {} on the CPU", bench.shape);
  out.command = fourfold::format("fourfold bench model --backend cpu --shape {} --prompt {} --tokens {}",
                                 bench.shape, bench.prompt, bench.tokens);
  out.seconds = options.quick ? 5.0 : 120.0;
  if (options.quick) out.left_out = "--quick: a tiny model, not the 35B";
  out.run = [bench](const Console& console, const fs::path&) { return run_bench_model(bench, console); };
  return out;
}

}  // namespace

fs::path report_path(const ReportOptions& options, const ReportDevice& device) {
  if (!options.out.empty()) return options.out;
  return fourfold::format("fourfold-report-{}.json", device.card());
}

fs::path tuning_path(const ReportOptions& options, const ReportDevice& device) {
  std::error_code none;
  if (fs::is_directory(options.tune_out, none))  // named as `fourfold tune` names its own
    return fs::path(options.tune_out) /
           library::tuned_file_name(device.chip.empty() ? device.name : device.chip);
  if (!options.tune_out.empty()) return options.tune_out;
  return report_path(options, device).parent_path() /
         fourfold::format("fourfold-tuned-{}.json", device.card());
}

std::vector<ReportPart> report_parts(const ReportOptions& options, const ReportDevice& device) {
  std::vector<ReportPart> parts{doctor_part(options, device), verify_part(options, device, false)};
  if (!device.unusable.empty()) {
    parts.back().skipped = device.unusable;
    return parts;
  }
  if (!device.is_gpu()) {
    parts.push_back(moe_part(options, device, "35b", "w4a16"));
    add_simulated_tuning(options, device, parts);
    parts.push_back(cpu_part(options));
    return parts;
  }
  parts.push_back(verify_part(options, device, true));
  const plan::ArchFacts* arch = plan::find_arch(device.arch);
  for (const char* shape : {"35b", "122b", "397b-tp4", "397b"}) {
    parts.push_back(moe_part(options, device, shape, "w4a16"));
    // Emulated, its times say nothing.
    if (arch != nullptr && arch->has_fp4_mma) parts.push_back(moe_part(options, device, shape, "w4a4"));
  }
  add_model_parts(options, device, parts);
  return parts;
}

}  // namespace fourfold::cli
