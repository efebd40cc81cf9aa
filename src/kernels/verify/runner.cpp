#include "kernels/verify/runner.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/parallel.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::verify {
namespace {

// What every result says of its case, whether or not it ran.
Result named(const Case& test, const Target& target) {
  Result result;
  result.kernel = test.kernel;
  result.row = test.row;
  result.op = test.op;
  result.machine = target.description;
  result.seed = test.seed;
  return result;
}

Result run_one(const Job& job) {
  const Case& test = job.test;
  Result result = named(test, *job.target);
  const Arithmetic arithmetic = arithmetic_of(*job.target, test);
  if (!arithmetic.refusal.empty()) {
    result.refused = arithmetic.refusal;
    return result;
  }
  const bool bits_exact = arithmetic.notice.empty();
  try {
    job.target->use(test.seed, [&](kernels::Machine& machine) { result = test.run(machine, bits_exact); });
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace

Arithmetic arithmetic_of(const Target& target, const Case& test) {
  return arithmetic_of(target.probes, test.native_form.empty() ? "bf16" : test.native_form);
}

Target simulator_target(const plan::ArchFacts& arch, std::function<void(sim::Device&)> prepare) {
  Target target;
  target.description = fourfold::format("simulator, {}", arch.name);
  target.arch = &arch;
  target.use = [&arch, prepare](std::uint64_t seed, const std::function<void(kernels::Machine&)>& with) {
    sim::Device device;
    device.set_seed(seed);
    if (prepare) prepare(device);
    kernels::SimMachineOptions options;
    options.arch = &arch;
    with(*kernels::make_sim_machine(device, options));
  };
  return target;
}

std::vector<Result> run_jobs(const std::vector<Job>& jobs,
                             const std::function<void(const Progress&)>& progress) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Not stable_sort: libstdc++ 12's does not compile cleanly with clang 19.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return jobs[a].test.cost != jobs[b].test.cost ? jobs[a].test.cost > jobs[b].test.cost : a < b;
  });
  const double total = std::accumulate(jobs.begin(), jobs.end(), 0.0,
                                       [](double sum, const Job& job) { return sum + job.test.cost; });
  std::vector<Result> results(jobs.size());
  std::mutex mutex;
  double done_cost = 0.0;
  int done = 0;
  parallel_for(static_cast<std::int64_t>(jobs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::size_t index = order[static_cast<std::size_t>(at)];
      results[index] = run_one(jobs[index]);
      const std::lock_guard lock(mutex);
      done_cost += jobs[index].test.cost;
      ++done;
      if (progress) progress({done, static_cast<int>(jobs.size()), done_cost / total});
    }
  });
  return results;
}

MachineComparison compare_machines(const Target& first, const Target& second, const Case& test) {
  MachineComparison comparison{test.row, test.op, first.description, second.description, test.seed, 0, 0, {}};
  try {
    std::vector<std::uint8_t> outputs[2];
    first.use(test.seed, [&](kernels::Machine& machine) { outputs[0] = test.output(machine); });
    second.use(test.seed, [&](kernels::Machine& machine) { outputs[1] = test.output(machine); });
    comparison.bytes = static_cast<std::int64_t>(outputs[0].size());
    if (outputs[0].size() != outputs[1].size())
      comparison.failure =
          fourfold::format("{} bytes on one, {} on the other", outputs[0].size(), outputs[1].size());
    else
      for (std::size_t i = 0; i < outputs[0].size(); ++i)
        comparison.different += outputs[0][i] != outputs[1][i];
  } catch (const std::exception& error) {
    comparison.failure = error.what();
  }
  return comparison;
}

}  // namespace fourfold::verify
