// The CPU time the calling thread has had: for limits on work, which a busy machine must not shorten.
#pragma once

#include <time.h>

#include <chrono>

namespace fourfold {

inline std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace fourfold
