// Threads that share out the items of one loop after another. Between two loops they look for the next one
// for some 20 us and then sleep, so that a forward pass never waits for the operating system, and a program
// that does nothing uses nothing. A thread that sleeps too deep is not waited for: its items are done by the
// others.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace fourfold::backend::cpu {

// The CPUs this process may run on.
std::vector<int> allowed_cpus();

// What to say when a pool has fewer threads than it was asked for; empty when it has them all.
std::string thread_notice(int asked, int got);

class ThreadPool {
 public:
  // thread_count with the caller among them, or as many as the system gives; the others are pinned to one CPU
  // each where there are enough, those behind number first_cpu of the allowed ones.
  explicit ThreadPool(int thread_count, int first_cpu = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(item) for each item of [0, count), in any order and on any thread, and returns when all are
  // done. One call at a time. When work throws, items not yet begun are left out, and the first exception is
  // the caller's.
  template <class Work>
  void run(std::int64_t count, const Work& work) {
    if (count <= 1 || workers_.empty()) {
      for (std::int64_t item = 0; item < count; ++item) work(item);
      return;
    }
    run_items(count, &call<Work>, &work);
  }

  // As run, with ranges of items: work(begin, end).
  template <class Work>
  void run_ranges(std::int64_t count, std::int64_t grain, const Work& work) {
    run((count + grain - 1) / grain, [&](std::int64_t range) {
      const std::int64_t begin = range * grain;
      work(begin, begin + grain < count ? begin + grain : count);
    });
  }

 private:
  using Call = void (*)(const void* work, std::int64_t item);
  template <class Work>
  static void call(const void* work, std::int64_t item) {
    (*static_cast<const Work*>(work))(item);
  }

  void run_items(std::int64_t count, Call function, const void* work);
  void take_items();
  void work_until_stopped(int cpu);

  // The loop now running; written while no worker is inside.
  Call call_ = nullptr;
  const void* work_ = nullptr;
  std::int64_t count_ = 0;
  alignas(64) std::atomic<std::int64_t> next_{0};
  // Whether workers may still enter the loop, and how many are inside.
  static constexpr std::uint32_t kOpen = 1u << 31;
  alignas(64) std::atomic<std::uint32_t> inside_{0};
  alignas(64) std::atomic<std::uint32_t> loop_number_{0};
  std::atomic<bool> stops_{false};
  std::atomic<bool> failed_{false};  // failure_ is whose exchange made it true
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace fourfold::backend::cpu
