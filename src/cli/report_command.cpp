#include "cli/report_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/file_signals.h"
#include "cli/parse.h"
#include "cli/report_file.h"
#include "cli/report_status.h"
#include "kernels/gpu/gpu.h"
#include "library/tuned.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int kFormat = 1;               // of the file; a change that readers must know raises it
constexpr double kDeviceSeconds = 120;   // to say what it is
constexpr double kPartSecondsMin = 900;  // a part gets ten times its estimate, but no less than this

#if defined(__x86_64__)
constexpr const char* kTarget = "x86-64";
#elif defined(__aarch64__)
constexpr const char* kTarget = "aarch64";
#else
constexpr const char* kTarget = "unknown";
#endif
#ifdef __OPTIMIZE__
constexpr bool kIsOptimised = true;
#else
constexpr bool kIsOptimised = false;
#endif

// A folder that goes with the object. Throws io when there is no room for it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code none;
    const fs::path parent = fs::temp_directory_path(none);
    std::string pattern = ((none ? fs::path("/tmp") : parent) / "fourfold-report-XXXXXX").string();
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

json::object head_of(const ReportOptions& options, const ReportDevice& device) {
  json::object head;
  head["format"] = kFormat;
  head["what"] =
      "fourfold report: one machine, verified and measured; names, serials, addresses and keys removed";
  head["version"] = version();
  head["commit"] = commit().empty() ? "unknown" : commit();
  head["date"] = utc_date();
  head["build"] = {{"cuda_kernels", kernels::has_cuda_kernels()},
                   {"compiler", __VERSION__},
                   {"target", kTarget},
                   {"optimised", kIsOptimised}};
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

json::object begin_part(const ReportPart& part, const std::string& status) {
  json::object out{{"name", part.name}, {"command", part.command}, {"status", status}};
  if (!part.left_out.empty()) out["left_out"] = part.left_out;
  return out;
}

class Run {
 public:
  Run(const ReportOptions& options, const ReportDevice& device, const std::vector<ReportPart>& parts,
      ReportFile& file, const Console& console)
      : options_(options), device_(device), parts_(parts), file_(file), console_(console) {}

  int run() {
    announce();
    for (std::size_t i = 0; i < parts_.size(); ++i) file_.set_part(i, begin_part(parts_[i], "not run"));
    save();  // where nothing can be written, nothing is measured
    for (std::size_t i = 0; i < parts_.size() && !FileSignals::asked(); ++i) run_part(i);
    save();
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

  void save() {
    try {
      file_.write();
      is_saved_ = true;
    } catch (const Error& error) {
      console_.out << summary_;
      const std::string hint = fourfold::format(
          "{} still has what was written before. Make room, then run it again with --force.", file_.path());
      fail_with_hint(error.code(), is_saved_ ? hint : error.hint(), "{}", error.what());
    }
  }

  void run_part(std::size_t index) {
    const ReportPart& part = parts_[index];
    const std::string title = fourfold::format("report: {} of {}: {}", index + 1, parts_.size(), part.name);
    if (const std::string why = why_skipped(part); !why.empty()) {
      json::object kept = begin_part(part, "skipped");
      kept["reason"] = why;
      file_.set_part(index, kept);
      console_.err << title << ": skipped: " << why << "\n";
      summary_ += fourfold::format("  {}: skipped: {}\n", part.name, why);
      return;
    }
    file_.set_part(index, begin_part(part, "running"));
    save();
    console_.err << title << fourfold::format(", about {}", duration(part.seconds))
                 << (console_.err_rewrites() ? "" : "\n") << std::flush;
    // Without a folder or a process it has failed before it began.
    Apart ended;
    std::unique_ptr<ScratchFolder> folder;
    try {
      folder = std::make_unique<ScratchFolder>();
      ended = run_apart(part, title, folder->path());
    } catch (const Error& error) {
      ended.status = kFailed;
      ended.err = fourfold::format("fourfold: {}\n", error.what());
    }
    keep(index, ended, folder ? folder->path() : fs::path());
  }

  // Its own reason; or a part before it that nobody could end, which holds the GPU.
  std::string why_skipped(const ReportPart& part) const {
    if (!part.skipped.empty() || !part.uses_gpu || stuck_.empty()) return part.skipped;
    return fourfold::format("the process of '{}' cannot be ended and holds the GPU; restart the machine",
                            stuck_);
  }

  Apart run_apart(const ReportPart& part, const std::string& title, const fs::path& folder) const {
    ApartLimits limits;
    limits.seconds =
        options_.part_minutes > 0 ? 60 * options_.part_minutes : std::max(kPartSecondsMin, 10 * part.seconds);
    limits.stuck_seconds = std::min(limits.stuck_seconds, limits.seconds);
    limits.is_over = [] { return FileSignals::asked(); };
    limits.tick = [&, shown = 0](double seconds) mutable {
      if (!console_.err_rewrites() || static_cast<int>(seconds) == shown) return;
      shown = static_cast<int>(seconds);
      console_.err << fourfold::format("\r\033[K{}: {} of about {}", title, duration(seconds),
                                       duration(part.seconds))
                   << std::flush;
    };
    return cli::run_apart([&](const Console& console) { return part.run(console, folder); }, folder, limits);
  }

  // The part's members, or why they cannot be had: what a command that ended well printed and we cannot read.
  static std::string keep_members(const ReportPart& part, const Apart& ended, const fs::path& folder,
                                  json::object& kept) {
    try {
      part.keep(ended, folder, kept);
      return {};
    } catch (const std::exception& error) {
      return fourfold::format("what it wrote cannot be read: {}", error.what());
    }
  }

  void keep(std::size_t index, const Apart& ended, const fs::path& folder) {
    const ReportPart& part = parts_[index];
    std::string status = status_of(ended), error;
    json::object kept = begin_part(part, status);
    kept["seconds"] = ended.seconds;
    if (status != "done" && status != "missed")
      error = error_of(ended);
    else if (part.keep)
      error = keep_members(part, ended, folder, kept);
    if (error.empty() && part.keep) write_result(part, folder, kept);
    if (!error.empty()) {
      if (status == "done" || status == "missed") status = "failed";
      kept["status"] = status;
      kept["error"] = error;
    }
    if (!error.empty() || !part.keep) kept["output"] = lines_of(ended.out);
    if (!ended.err.empty()) kept["stderr"] = lines_of(ended.err);
    file_.set_part(index, kept);
    if (ended.is_stuck) stuck_ = part.name;
    if (status == "done" && !part.tuning_file.empty()) tuning_file_ = part.tuning_file;
    is_fine_ = is_fine_ && status == "done" && !kept.contains("results_error");
    const std::string found =
        error.empty() && kept.contains("headline") ? std::string(kept.at("headline").as_string()) : error;
    const std::string line = fourfold::format("{} in {}{}", status, duration(ended.seconds),
                                              found.empty() ? "" : ": " + file_.clean(found));
    console_.err << (console_.err_rewrites() ? "\r\033[K" : "") << "report: " << part.name << ": " << line
                 << "\n";
    summary_ += fourfold::format("  {}: {}\n", part.name, line);
    save();
  }

  // The part's own file. The report has the same, so that one that cannot be written does not end it.
  void write_result(const ReportPart& part, const fs::path& folder, json::object& kept) const {
    if (options_.results.empty() || part.result_file.empty()) return;
    const std::string text =
        part.result_source.empty() ? json_text(kept.at("result")) : read_text(folder / part.result_source);
    try {
      write_file((fs::path(options_.results) / part.result_file).string(), file_.clean(text));
    } catch (const Error& error) {
      kept["results_error"] = error.what();
      show_error(console_, error.what(), error.hint());
    }
  }

  int finish() const {
    console_.out << summary_;
    if (FileSignals::asked()) {
      show_error(console_, fourfold::format("stopped; {} has what was done until then", file_.path()),
                 "The same command with --force begins anew.");
      return kFailed;
    }
    if (!tuning_file_.empty() && device_.is_gpu())
      console_.out << fourfold::format(
          "{}\nThe kernels that are fastest on this card: --tuned FILE takes it, and so does every run "
          "after\n"
          "  install -D -m 644 {} {}\n",
          tuning_file_, shell_word(tuning_file_),
          shell_word((library::user_tuned_folder() / library::tuned_file_name(device_.chip)).string()));
    console_.out << fourfold::format(
        "{}\nNames, serials, addresses and keys were taken out of it; read it before you send it.\n",
        file_.path());
    return is_fine_ ? kFine : kMiss;
  }

  const ReportOptions& options_;
  const ReportDevice& device_;
  const std::vector<ReportPart>& parts_;
  ReportFile& file_;
  const Console& console_;
  std::string summary_;
  std::string stuck_;        // the part whose process could not be ended
  std::string tuning_file_;  // that this run has made
  bool is_saved_ = false;
  bool is_fine_ = true;
};

void require_options(const ReportOptions& options) {
  if (options.device != "cuda" && options.device != "sim")
    fail_with_hint(Code::invalid_request, "Known devices: cuda, sim.", "unknown device '{}'", options.device);
  if (!(options.part_minutes >= 0))
    fail(Code::invalid_request, "--part-minutes {}: 0 or more", options.part_minutes);
  if (!options.tune && !options.tune_out.empty())
    fail(Code::invalid_request, "--tune-out {} and --no-tune contradict each other", options.tune_out);
}

// Before anything is measured for an hour in vain.
void require_folder(const char* option, const fs::path& path) {
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::is_directory(folder, ignored))
    fail_with_hint(Code::io, fourfold::format("mkdir -p {}", shell_word(folder.string())),
                   "{} {}: there is no folder {}", option, path.string(), folder.string());
  if (::access(folder.c_str(), W_OK) != 0)
    fail_with_hint(Code::io, "Give a folder of your own.", "{} {}: {} cannot be written: {}", option,
                   path.string(), folder.string(), std::strerror(errno));
  if (fs::is_directory(path, ignored))
    fail(Code::io, "{} {} is a folder; a file is written", option, path.string());
}

void require_places(const ReportOptions& options, const ReportDevice& device) {
  std::error_code error;
  const fs::path path = report_path(options, device);
  require_folder("--out", path);
  if (fs::is_regular_file(path, error) && !options.force)
    fail_with_hint(Code::io, "--force replaces it; --out FILE writes another.", "{} is there already",
                   path.string());
  if (options.tune) require_folder("--tune-out", tuning_path(options, device));
  if (options.results.empty()) return;
  fs::create_directories(options.results, error);
  if (error) fail(Code::io, "--results {} cannot be made: {}", options.results, error.message());
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
  require_places(options, device);
  const FileSignals signals;
  ReportFile file(report_path(options, device).string(), doctor::names_here(), head_of(options, device));
  return Run(options, device, parts, file, console).run();
}

int run_report(const ReportOptions& options, const Console& console) {
  require_options(options);
  if (!options.out.empty()) require_places(options, {});  // before a GPU is asked
  const ReportDevice device = find_device(options);
  return write_report(options, device, report_parts(options, device), console);
}

}  // namespace fourfold::cli
