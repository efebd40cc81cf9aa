#include "backend/cpu/pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/format.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fourfold::backend::cpu {
namespace {

constexpr int kSpins = 400;  // of some 50 ns

void rest() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

void pin_to(int cpu) {
#if defined(__linux__)
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Speed only: where it is forbidden, threads wander.
  static_cast<void>(sched_setaffinity(0, sizeof set, &set));
#else
  static_cast<void>(cpu);
#endif
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  if (cpus.empty())
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu)
      cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

std::string thread_notice(int asked, int got) {
  if (got >= asked) return {};
  return format("{} threads were asked for, the system gave {}: every step takes longer", asked, got);
}

ThreadPool::ThreadPool(int thread_count, int first_cpu) {
  check(thread_count > 0, "the caller counts as a thread", thread_count);
  const std::vector<int> cpus = allowed_cpus();
  const bool pins = first_cpu + thread_count <= static_cast<int>(cpus.size());
  for (int i = 1; i < thread_count; ++i) {
    try {
      const int cpu = pins ? cpus[static_cast<std::size_t>(first_cpu + i)] : -1;
      workers_.emplace_back([this, cpu] { work_until_stopped(cpu); });
    } catch (const std::system_error&) {
      break;  // The system has no thread to give: those there are do all the work. See thread_notice.
    }
  }
}

ThreadPool::~ThreadPool() {
  stops_.store(true);
  loop_number_.fetch_add(1);
  loop_number_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_items() {
  for (;;) {
    const std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= count_) return;
    try {
      call_(work_, item);
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
      next_.store(count_, std::memory_order_relaxed);
    }
  }
}

void ThreadPool::run_items(std::int64_t count, Call function, const void* work) {
  call_ = function;
  work_ = work;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  inside_.store(kOpen, std::memory_order_release);
  loop_number_.fetch_add(1, std::memory_order_release);
  loop_number_.notify_all();
  take_items();
  // No thread enters any more; those inside finish the items they have.
  std::uint32_t inside = inside_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spin = 0; inside != 0 && spin < kSpins; ++spin) {
    rest();
    inside = inside_.load(std::memory_order_acquire);
  }
  while (inside != 0) {
    inside_.wait(inside, std::memory_order_acquire);
    inside = inside_.load(std::memory_order_acquire);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work_until_stopped(int cpu) {
  pin_to(cpu);
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t number = loop_number_.load(std::memory_order_acquire);
    for (int spin = 0; number == seen && spin < kSpins; ++spin) {
      rest();
      number = loop_number_.load(std::memory_order_acquire);
    }
    if (number == seen) {
      loop_number_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = number;
    if (stops_.load()) return;
    std::uint32_t inside = inside_.load(std::memory_order_acquire);
    while ((inside & kOpen) != 0 &&
           !inside_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
    }
    if ((inside & kOpen) == 0) continue;  // came too late
    take_items();
    if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) inside_.notify_one();
  }
}

}  // namespace fourfold::backend::cpu
