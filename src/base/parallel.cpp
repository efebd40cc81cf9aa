// parallel_for: a shared counter hands out ranges in order to the caller and its helpers.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fourfold {
namespace {

// True while this thread works for a parallel_for: nested calls would otherwise multiply the threads.
thread_local bool inside_parallel_for = false;

struct Work {
  std::int64_t count;
  std::int64_t grain;
  const std::function<void(std::int64_t, std::int64_t)>& run;
  std::atomic<std::int64_t> next_range{0};
  std::atomic<bool> failed{false};
  std::mutex mutex{};
  std::int64_t failed_range = std::numeric_limits<std::int64_t>::max();  // guarded by mutex, as is error
  std::exception_ptr error{};

  std::int64_t range_count() const { return count / grain + (count % grain != 0); }

  // Ranges are claimed in order and a claimed range always runs, so the lowest failing range runs whatever
  // fails first.
  void run_ranges() {
    while (!failed.load(std::memory_order_relaxed)) {
      const std::int64_t range = next_range.fetch_add(1, std::memory_order_relaxed);
      if (range >= range_count()) return;
      const std::int64_t begin = range * grain;
      try {
        run(begin, std::min(grain, count - begin) + begin);
      } catch (...) {
        keep(range, std::current_exception());
      }
    }
  }

  void keep(std::int64_t range, std::exception_ptr thrown) {
    const std::lock_guard lock(mutex);
    failed.store(true, std::memory_order_relaxed);
    if (range >= failed_range) return;
    failed_range = range;
    error = std::move(thrown);
  }
};

void run_as_worker(Work& work) {
  const bool outer = inside_parallel_for;
  inside_parallel_for = true;
  work.run_ranges();
  inside_parallel_for = outer;
}

}  // namespace

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& run) {
  check(count >= 0 && grain > 0, "a count and a grain", count, grain);
  if (count == 0) return;
  Work work{.count = count, .grain = grain, .run = run};
  const std::int64_t cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t helper_count = inside_parallel_for ? 0 : std::min(cores, work.range_count()) - 1;
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(helper_count));
  for (std::int64_t i = 0; i < helper_count; ++i) {
    try {
      helpers.emplace_back([&work] { run_as_worker(work); });
    } catch (const std::system_error&) {
      break;  // The system has no thread to give: the ones we have, the caller at least, do all the work.
    }
  }
  run_as_worker(work);
  for (std::thread& helper : helpers) helper.join();
  if (work.error) std::rethrow_exception(work.error);
}

}  // namespace fourfold
