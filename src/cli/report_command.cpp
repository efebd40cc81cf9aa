#include "cli/report_command.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/file_signals.h"
#include "cli/parse.h"
#include "cli/report_file.h"
#include "kernels/gpu/gpu.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int kFormat = 1;              // of the file; a change that readers must know raises it
constexpr double kDeviceSeconds = 120;  // to say what it is

// A folder that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "fourfold-report-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      fail(Code::io, "{} cannot be made: {}", pattern, std::strerror(errno));
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  return whole < 100 ? fourfold::format("{} s", whole) : fourfold::format("{} min", (whole + 30) / 60);
}

json::object head_of(const ReportOptions& options, const ReportDevice& device) {
  json::object head;
  head["format"] = kFormat;
  head["what"] =
      "fourfold report: one machine, verified and measured; names, serials, addresses and keys removed";
  head["version"] = version();
  head["commit"] = commit().empty() ? "unknown" : commit();
  head["date"] = utc_date();
  head["build"] = {
    {"cuda_kernels", kernels::has_cuda_kernels()},
    {"compiler", __VERSION__},
#if defined(__x86_64__)
    {"target", "x86-64"},
#elif defined(__aarch64__)
    {"target", "aarch64"},
#else
    {"target", "unknown"},
#endif
#ifdef __OPTIMIZE__
    {"optimised", true}
  };
#else
    {"optimised", false}
  };
#endif
  if (const std::string bytes = emulated_sm_bytes(); !bytes.empty()) head["emulated_sm_bytes"] = bytes;
  head["options"] = {{"device", options.device},
                     {"quick", options.quick},
                     {"tune", options.tune},
                     {"rows", options.rows},
                     {"gpu", options.gpu}};
  json::object told{{"name", device.name}};
  if (!device.unusable.empty()) told["unusable"] = device.unusable;
  if (device.total_bytes > 0)
    told.insert({{"chip", device.chip},
                 {"arch", device.arch},
                 {"sm_count", device.sm_count},
                 {"memory_bytes", device.total_bytes},
                 {"free_bytes", device.free_bytes},
                 {"driver", device.driver},
                 {"sm_clock_mhz", device.sm_clock_mhz},
                 {"memory_clock_mhz", device.memory_clock_mhz}});
  head["device"] = std::move(told);
  return head;
}

json::object begin_part(const ReportPart& part, const char* status) {
  return {{"name", part.name}, {"command", part.command}, {"status", status}};
}

// done, missed (a check failed), failed (it ended with an error), out of time, stopped.
std::string status_of(const Apart& ended) {
  switch (ended.end) {
    case Apart::End::returned:
      return ended.status == kFine ? "done" : ended.status == kMiss ? "missed" : "failed";
    case Apart::End::killed: return "failed";
    case Apart::End::out_of_time: return "out of time";
    case Apart::End::stopped: return "stopped";
  }
  return "failed";
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line))
    if (line.find_first_not_of(" \r") != std::string::npos) last = line;
  return last;
}

// Why a part is not done, in a sentence; its own words where it had time for them.
std::string error_of(const Apart& ended) {
  if (ended.end == Apart::End::stopped) return "the run was interrupted";
  if (ended.end == Apart::End::out_of_time)
    return fourfold::format("stopped after {}; --part-minutes allows more", duration(ended.seconds));
  const std::string said = last_line(ended.err);
  if (ended.end == Apart::End::killed)
    return fourfold::format("ended by signal {} ({}){}", ended.status, strsignal(ended.status),
                            said.empty() ? "" : ": " + said);
  // The message comes first, and may have a hint in the next line.
  std::istringstream lines(ended.err);
  for (std::string line, found; std::getline(lines, line);) {
    constexpr std::string_view ours = "fourfold: ";
    if (line.starts_with(ours) && !line.starts_with("fourfold: notice:") &&
        !line.starts_with("fourfold: warning:"))
      return line.substr(ours.size());
  }
  return said.empty() ? fourfold::format("ended with status {}", ended.status) : said;
}

class Run {
 public:
  Run(const ReportOptions& options, const std::vector<ReportPart>& parts, ReportFile& file,
      const Console& console)
      : options_(options), parts_(parts), file_(file), console_(console) {}

  int run() {
    announce();
    for (std::size_t i = 0; i < parts_.size(); ++i) file_.set_part(i, begin_part(parts_[i], "not run"));
    for (std::size_t i = 0; i < parts_.size() && !FileSignals::asked(); ++i) run_part(i);
    file_.write();
    return finish();
  }

 private:
  void announce() const {
    double seconds = 0;
    for (const ReportPart& part : parts_)
      if (part.skipped.empty()) seconds += part.seconds;
    console_.err << fourfold::format(
        "report: {} parts, about {} (on an H200 or a CPU of 16 cores; others take longer); {} is whole after "
        "each\n",
        parts_.size(), duration(seconds), file_.path());
  }

  void run_part(std::size_t index) {
    const ReportPart& part = parts_[index];
    const std::string title = fourfold::format("report: {} of {}: {}", index + 1, parts_.size(), part.name);
    if (!part.skipped.empty()) {
      json::object kept = begin_part(part, "skipped");
      kept["reason"] = part.skipped;
      file_.set_part(index, kept);
      console_.err << title << ": skipped: " << part.skipped << "\n";
      summary_ += fourfold::format("  {}: skipped: {}\n", part.name, part.skipped);
      return;
    }
    file_.set_part(index, begin_part(part, "running"));
    file_.write();
    console_.err << title << fourfold::format(", about {}", duration(part.seconds))
                 << (console_.err_rewrites() ? "" : "\n") << std::flush;
    const ScratchFolder folder;
    ApartLimits limits;
    limits.seconds = 60 * options_.part_minutes;
    limits.is_over = [] { return FileSignals::asked(); };
    limits.tick = [&, shown = 0](double seconds) mutable {
      if (!console_.err_rewrites() || static_cast<int>(seconds) == shown) return;
      shown = static_cast<int>(seconds);
      console_.err << fourfold::format("\r\033[K{}: {} of about {}", title, duration(seconds),
                                       duration(part.seconds))
                   << std::flush;
    };
    const Apart ended = run_apart([&](const Console& console) { return part.run(console, folder.path()); },
                                  folder.path(), limits);
    keep(index, ended, folder.path());
  }

  void keep(std::size_t index, const Apart& ended, const fs::path& folder) {
    const ReportPart& part = parts_[index];
    const std::string status = status_of(ended);
    json::object kept = begin_part(part, status.c_str());
    kept["seconds"] = ended.seconds;
    const bool failed = status != "done" && status != "missed";
    if (failed) kept["error"] = error_of(ended);
    if (part.keep && !failed)
      part.keep(ended, folder, kept);
    else
      kept["output"] = lines_of(ended.out);
    if (!ended.err.empty()) kept["stderr"] = lines_of(ended.err);
    file_.set_part(index, kept);
    file_.write();
    write_result(part, ended, folder, failed);
    is_fine_ = is_fine_ && status == "done";
    const std::string line = fourfold::format("{} in {}{}", status, duration(ended.seconds),
                                              failed ? ": " + file_.clean(error_of(ended)) : "");
    console_.err << (console_.err_rewrites() ? "\r\033[K" : "") << "report: " << part.name << ": " << line
                 << "\n";
    summary_ += fourfold::format("  {}: {}\n", part.name, line);
  }

  void write_result(const ReportPart& part, const Apart& ended, const fs::path& folder, bool failed) const {
    if (options_.results.empty() || part.result_file.empty() || failed) return;
    std::string text = ended.out;
    if (!part.result_source.empty()) {
      std::ifstream source(folder / part.result_source, std::ios::binary);
      std::stringstream all;
      all << source.rdbuf();
      text = all.str();
    }
    write_file((fs::path(options_.results) / part.result_file).string(), file_.clean(text));
  }

  int finish() const {
    console_.out << summary_;
    if (FileSignals::asked()) {
      show_error(console_, fourfold::format("stopped; {} has what was done until then", file_.path()),
                 "The same command with --force begins anew.");
      return kFailed;
    }
    console_.out << fourfold::format(
        "{}\nNames, serials, addresses and keys were taken out of it; read it before you send it.\n",
        file_.path());
    return is_fine_ ? kFine : kMiss;
  }

  const ReportOptions& options_;
  const std::vector<ReportPart>& parts_;
  ReportFile& file_;
  const Console& console_;
  std::string summary_;
  bool is_fine_ = true;
};

void require_options(const ReportOptions& options) {
  if (options.device != "cuda" && options.device != "sim")
    fail_with_hint(Code::invalid_request, "Known devices: cuda, sim.", "unknown device '{}'", options.device);
  if (!(options.part_minutes > 0))
    fail(Code::invalid_request, "--part-minutes {}: more than 0", options.part_minutes);
  if (!options.tune && !options.tune_out.empty())
    fail(Code::invalid_request, "--tune-out {} is the file of --tune, which was not asked for",
         options.tune_out);
}

// Before anything is measured for an hour in vain.
void require_place(const std::string& path, bool force) {
  std::error_code ignored;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    fail_with_hint(Code::io, fourfold::format("mkdir -p {}", shell_word(folder.string())),
                   "--out {}: there is no folder {}", path, folder.string());
  if (fs::is_directory(path, ignored)) fail(Code::io, "--out {} is a folder; a file is written", path);
  if (fs::is_regular_file(path, ignored) && !force)
    fail_with_hint(Code::io, "--force replaces it; --out FILE writes another.", "{} is there already", path);
}

// Asked in a process of its own: this one must not open CUDA, or the parts could not.
ReportDevice find_device(const ReportOptions& options) {
  if (options.device == "sim") return {.name = "simulator"};
  const ScratchFolder folder;
  const Apart ended = run_apart([&](const Console& console) { return tell_device(options.gpu, console); },
                                folder.path(), {.seconds = kDeviceSeconds});
  if (ended.end == Apart::End::returned && ended.status == kFine) return device_of(ended.out);
  if (ended.end == Apart::End::returned && ended.status == kMiss)
    fail_with_hint(
        Code::unsupported_device,
        "Here `fourfold report --device sim --quick` can write what the simulator proves, what this "
        "CPU does and what the doctor finds.",
        "there is no GPU to report on: {}", last_line(ended.err));
  ReportDevice device{.name = fourfold::format("GPU {}", options.gpu)};
  device.unusable = error_of(ended);
  return device;
}

}  // namespace

int write_report(const ReportOptions& options, const ReportDevice& device,
                 const std::vector<ReportPart>& parts, const Console& console) {
  const std::string path =
      options.out.empty() ? fourfold::format("fourfold-report-{}.json", device.card()) : options.out;
  require_place(path, options.force);
  if (!options.results.empty()) {
    std::error_code error;
    fs::create_directories(options.results, error);
    if (error) fail(Code::io, "--results {} cannot be made: {}", options.results, error.message());
  }
  const FileSignals signals;
  ReportFile file(path, doctor::names_here(), head_of(options, device));
  return Run(options, parts, file, console).run();
}

int run_report(const ReportOptions& options, const Console& console) {
  require_options(options);
  if (!options.out.empty()) require_place(options.out, options.force);
  const ReportDevice device = find_device(options);
  return write_report(options, device, report_parts(options, device), console);
}

}  // namespace fourfold::cli
