#include "cli/verify_command.h"

#include <chrono>
#include <list>
#include <mutex>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/glob.h"
#include "base/parallel.h"
#include "cli/build_info.h"
#include "cli/progress.h"
#include "cli/verify_report.h"
#include "kernels/gpu/gpu.h"
#include "kernels/verify/probes.h"
#include "kernels/verify/runner.h"

namespace fourfold::cli {
namespace {

using verify::CaseOptions;
using verify::Job;
using verify::RowSet;
using verify::Target;

// GEMM cases run on both machines for the direct comparison; of the step kernels it is one a row and
// operation, since not all of them have a scalar model of their bits.
constexpr std::size_t kCompared = 24;

// Opened GPUs that no thread is using. A machine has one stream, so every thread that proves takes one of its
// own.
class GpuPool {
 public:
  explicit GpuPool(int index) : index_(index) {}

  void use(const std::function<void(kernels::Machine&)>& with) {
    std::unique_ptr<kernels::Gpu> gpu = take();
    gpu->use();
    with(gpu->machine());
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(gpu));  // not after an exception: what happened to that one is unknown
  }

 private:
  std::unique_ptr<kernels::Gpu> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<kernels::Gpu> gpu = std::move(free_.back());
        free_.pop_back();
        return gpu;
      }
    }
    return kernels::open_gpu(index_);
  }

  int index_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<kernels::Gpu>> free_;
};

class Verification {
 public:
  Verification(const VerifyOptions& options, const Console& console) : options_(options), console_(console) {
    report_.device = options.device;
    const auto clock = std::chrono::system_clock::now().time_since_epoch();
    report_.seed = options.seed.value_or(
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(clock).count()));
    if (options.seeds) cases_.seeds = *options.seeds;
    cases_.quick = options.quick;
    cases_.large = options.large;
    cases_.rows = options.rows;
    cases_.seed = report_.seed;
  }

  VerifyReport run() {
    const auto start = std::chrono::steady_clock::now();
    if (options_.device != "cuda") add_simulators();
    if (options_.device != "sim") add_gpu();
    if (jobs_.empty())
      fail_with_hint(Code::invalid_request, "Rows are listed by `fourfold plan`; * stands for anything.",
                     "no row matches '{}'", options_.rows);
    {
      ProgressLine line(console_, "verify");
      report_.results = verify::run_jobs(
          jobs_, [&](const verify::Progress& at) { line.update(at.done, at.count, at.share); });
    }
    report_.results.insert(report_.results.end(), refused_.begin(), refused_.end());
    if (gpu_ != nullptr && !options_.large) compare_with_simulator();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // SM120's rows on a simulated SM120; what Hopper has of its own on a simulated Hopper.
  void add_simulators() {
    add_cases(add_target(verify::simulator_target(plan::kSm120, options_.prepare_simulator)), RowSet::all);
    add_cases(add_target(verify::simulator_target(plan::kSm90, options_.prepare_simulator)), RowSet::own);
  }

  void add_gpu() {
    if (const std::string why = kernels::why_no_gpu();
        !why.empty() && options_.device == "all" && options_.stand_in == nullptr) {
      say(fourfold::format("no GPU was used: {}", why));
      return;
    }
    Target target = options_.stand_in ? *options_.stand_in : gpu_target();
    target.use(0, [&](kernels::Machine& machine) {
      target.description = machine.description();
      target.arch = &machine.arch();
      for (const kernels::Machine::RefusedRow& refused : machine.refused_rows())
        refuse(target.description, refused);
      if (machine.arch().has_fp4_mma) probe(machine, target);
    });
    gpu_ = &add_target(std::move(target));
    add_cases(*gpu_, RowSet::all);
  }

  Target gpu_target() const {
    const auto pool = std::make_shared<GpuPool>(options_.gpu);
    Target target;
    target.use = [pool](std::uint64_t, const std::function<void(kernels::Machine&)>& with) {
      pool->use(with);
    };
    return target;
  }

  // A row the compiler did not make as planned has no proof, and that is no pass.
  void refuse(const std::string& machine, const kernels::Machine::RefusedRow& row) {
    say(fourfold::format("{} is refused: {}", row.row, row.why));
    if (!options_.rows.empty() && !glob_match(options_.rows, row.row)) return;
    verify::Result result;
    result.kernel = row.kernel;
    result.row = row.row;
    result.machine = machine;
    result.refused = row.why;
    refused_.push_back(std::move(result));
  }

  void say(const std::string& text) {
    report_.notices.push_back(text);
    console_.err << "fourfold: notice: " << text << "\n";
  }

  // A chip with the FP4 instruction of its own: ask it before its rows run, and whether it adds bf16 up as
  // Hopper does.
  void probe(kernels::Machine& machine, Target& target) {
    target.probes = verify::run_probes(machine, report_.seed);
    report_.probed.push_back({machine.description(), target.probes});
    for (const char* form : {"nvfp4", "mxfp4", "bf16", "fp8"}) {
      const verify::Arithmetic arithmetic = verify::arithmetic_of(target.probes, form);
      const char* asked = std::string_view(form) == "fp8" ? "W8A8" : "W4A4";
      if (!arithmetic.refusal.empty())
        announce(console_, {fourfold::format("native {} rows", form), "W4A16", asked, arithmetic.refusal},
                 options_.strict);
      else if (!arithmetic.notice.empty())
        say(arithmetic.notice);
    }
  }

  const Target& add_target(Target target) {
    report_.machines.push_back(target.description);
    targets_.push_back(std::move(target));
    return targets_.back();
  }

  void add_cases(const Target& target, RowSet set) {
    target.use(0, [&](kernels::Machine& machine) {
      for (verify::Case& test : verify::make_cases(machine, set, cases_))
        jobs_.push_back({&target, std::move(test)});
    });
  }

  // The same case on both: every step row once, and a sample spread over the GPU's list of the others.
  void compare_with_simulator() {
    const Target simulator = verify::simulator_target(*gpu_->arch, options_.prepare_simulator);
    std::vector<const verify::Case*> others, chosen;
    std::set<std::string> seen;
    for (const Job& job : jobs_) {
      if (job.target != gpu_ || !job.test.output) continue;
      const verify::Arithmetic arithmetic = verify::arithmetic_of(*gpu_, job.test);
      if (!arithmetic.refusal.empty() || !arithmetic.notice.empty()) continue;  // its bits are not promised
      if (!job.test.is_step)
        others.push_back(&job.test);
      else if (seen.insert(job.test.row + job.test.op).second)
        chosen.push_back(&job.test);
    }
    const std::size_t count = std::min(others.size(), kCompared);
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(others[i * others.size() / count]);
    report_.comparisons.resize(chosen.size());
    parallel_for(static_cast<std::int64_t>(chosen.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        report_.comparisons[i] = verify::compare_machines(simulator, *gpu_, *chosen[i]);
    });
  }

  const VerifyOptions& options_;
  const Console& console_;
  CaseOptions cases_;
  std::list<Target> targets_;  // jobs point at them
  const Target* gpu_ = nullptr;
  std::vector<Job> jobs_;
  std::vector<verify::Result> refused_;
  VerifyReport report_;
};

void require_options(const VerifyOptions& options) {
  if (options.device != "sim" && options.device != "cuda" && options.device != "all")
    fail_with_hint(Code::invalid_request, "Known devices: sim, cuda, all.", "unknown device '{}'",
                   options.device);
  if (options.seeds && (*options.seeds < 1 || *options.seeds > 1000))
    fail(Code::invalid_request, "--seeds is {}; 1 to 1,000 are possible", *options.seeds);
  if (options.quick && options.seeds)
    fail(Code::invalid_request, "--quick proves each row once; --seeds asks for more: use one of them");
  if (options.large && options.device != "cuda")
    fail_with_hint(Code::invalid_request, "On a GPU: fourfold verify --device cuda --large",
                   "--large is for a GPU; the simulator would take days at the shapes of published models");
  if (options.large && (options.quick || options.seeds))
    fail(Code::invalid_request, "--large has shapes of its own; --quick and --seeds do not go with it");
}

}  // namespace

int run_verify(const VerifyOptions& options, const Console& console) {
  require_options(options);
  const VerifyReport report = Verification(options, console).run();
  if (!options.report.empty()) write_file(options.report, report_json(report));
  console.out << (options.json ? report_json(report) : report_text(report));
  return report.passed() ? kFine : kMiss;
}

}  // namespace fourfold::cli
