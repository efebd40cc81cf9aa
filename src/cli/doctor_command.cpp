#include "cli/doctor_command.h"

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/read_speed.h"
#include "cli/build_info.h"
#include "cli/doctor_model.h"
#include "cli/terminal_text.h"
#include "doctor/env_advice.h"
#include "doctor/judge.h"
#include "doctor/kernel_scan.h"
#include "doctor/live_server.h"
#include "doctor/log_reader.h"
#include "doctor/probes.h"
#include "doctor/recording.h"
#include "doctor/show.h"
#include "kernels/gpu/gpu.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kUrlsMax = 2;

// One run: what is known so far, and what will be shown beside the findings.
struct Examination {
  doctor::Facts facts;
  std::vector<std::string> about;
};

std::string usage_mistake(const DoctorOptions& options) {
  if (options.json && options.markdown)
    return "--json and --markdown are two forms of one report; choose one";
  if (!options.root.empty() && !options.record.empty())
    return "--root is a recording already; --record needs a machine";
  if (options.urls.size() > kUrlsMax) return "--url compares two servers, not more";
  if (options.measured && options.model.empty())
    return "--measured is held against a model's floor; add --model DIR";
  if (options.measured && !(*options.measured > 0)) return "--measured is a speed in tok/s, above 0";
  return {};
}

// Everything but the machine itself. A file that the command line names and that cannot be read is wrong
// usage.
void read_inputs(const DoctorOptions& options, Examination& examination, const Console& console) {
  doctor::Facts& facts = examination.facts;
  if (!options.log.empty()) doctor::read_log(options.log, facts);
  if (!options.scans.empty()) doctor::scan_kernels({options.scans.begin(), options.scans.end()}, facts);
  if (!options.model.empty()) {
    const doctor::ModelBytes bytes = model_bytes(options.model, options.root.empty(), facts, console);
    if (options.root.empty() && !options.quick && facts.number_or("gpus", 0) == 0)
      facts.set("cpu_gb_per_s", measure_read_gb_per_s());
    doctor::set_model_facts(bytes, options.measured, facts);
    const auto lines = doctor::about_model(bytes, facts);
    examination.about.insert(examination.about.end(), lines.begin(), lines.end());
  }
  if (!options.urls.empty()) doctor::measure_servers(options.urls, {}, facts);
}

void examine_here(const DoctorOptions& options, Examination& examination) {
  examination.facts.set("ours.cuda", kernels::has_cuda_kernels());
  if (options.quick) return;
  const auto lines = measure_gpus(examination.facts);
  examination.about.insert(examination.about.end(), lines.begin(), lines.end());
}

// Facts that a recording cannot ask for again: those no probe has set.
void write_recording(const std::string& folder, doctor::Recording recording, const doctor::Facts& probed,
                     const doctor::Facts& facts) {
  const doctor::Names names = doctor::names_here();
  for (const auto& [name, value] : facts.all()) {
    if (probed.get(name) == value) continue;
    doctor::Value kept = value;
    if (const auto* text = std::get_if<std::string>(&value)) kept = doctor::without_names(*text, names);
    if (name.starts_with("url.") && name.ends_with(".name")) kept = "server " + name.substr(4, 1);
    recording.facts.set_value(name, kept);
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(Code::io, "{} cannot be made: {}", folder, error.message());
  write_file((std::filesystem::path(folder) / doctor::kRecordingFile).string(),
             doctor::with_numbered_pci(doctor::recording_text(recording)));
}

Examination examine(const DoctorOptions& options, const Console& console) {
  Examination examination;
  doctor::Facts& facts = examination.facts;
  if (!options.root.empty()) {
    const doctor::Recording recording = doctor::read_recording(options.root);
    doctor::gather(*doctor::recorded_source(recording), facts);
    for (const auto& [name, value] : recording.facts.all()) facts.set_value(name, value);
    examination.about = our_rows(facts);
    read_inputs(options, examination, console);
    return examination;
  }
  const auto live = doctor::live_source();
  // CUDA would number the fastest GPU first; NVML goes by the bus, and both must mean the same card.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  doctor::Recording recording;
  doctor::gather(*doctor::recorder(*live, recording), facts);
  const doctor::Facts probed = facts;
  examination.about = our_rows(facts);
  examine_here(options, examination);
  read_inputs(options, examination, console);
  if (!options.record.empty()) write_recording(options.record, std::move(recording), probed, facts);
  return examination;
}

// Errors of what the command line names become exit code 64: 1 and 2 speak of the machine alone.
int guarded(const Console& console, const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    show_error(console, error.what(), error.hint());
    return kUsage;
  }
}

doctor::Purpose parse_purpose(const std::string& text) {
  if (text == "vllm") return doctor::Purpose::vllm;
  if (text == "docker") return doctor::Purpose::docker;
  if (text == "fourfold") return doctor::Purpose::fourfold;
  fail_with_hint(Code::invalid_request, "Known: vllm, docker, fourfold.", "--for {} is not known", text);
}

}  // namespace

int run_doctor(const DoctorOptions& options, const Console& console) {
  if (options.rules) {
    console.out << doctor::rules_page();
    return kFine;
  }
  if (const std::string mistake = usage_mistake(options); !mistake.empty()) {
    show_error(console, mistake);
    return kUsage;
  }
  return guarded(console, [&] {
    const Examination examination = examine(options, console);
    doctor::Report report = doctor::judge(examination.facts);
    report.about = examination.about;
    if (options.json)
      console.out << doctor::as_json(report) << "\n";
    else
      show(console, options.markdown ? doctor::as_markdown(report) : doctor::as_text(report));
    return doctor::exit_code(report);
  });
}

int run_env(const EnvOptions& options, const Console& console) {
  return guarded(console, [&] {
    const doctor::Purpose purpose = parse_purpose(options.purpose);
    DoctorOptions machine;
    machine.root = options.root;
    machine.quick = true;
    const Examination examination = examine(machine, console);
    const int there = static_cast<int>(examination.facts.number_or("gpus", 0));
    const int wanted = options.gpus.value_or(there);
    if (wanted < 0 || (there > 0 && wanted > there))
      fail_with_hint(Code::invalid_request, "Leave --gpus out for all that are here.",
                     "--gpus {}: this machine has {}", wanted, there);
    if (wanted > there)
      notice(console,
             fourfold::format("this machine has no NVIDIA GPU: what follows is for one with {}", wanted),
             false);
    show(console, doctor::advice_text(doctor::env_advice(examination.facts, purpose, wanted)));
    return static_cast<int>(kFine);
  });
}

}  // namespace fourfold::cli
