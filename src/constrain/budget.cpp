#include "constrain/budget.h"

#include <algorithm>

#include "base/error.h"
#include "base/thread_time.h"

namespace fourfold::constrain {
namespace {

constexpr std::int64_t kLookEvery = 100'000;  // steps: under a millisecond

constexpr const char* kHint = "ask for less: shorter counted repeats, fewer alternatives";

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), deadline_(thread_cpu_time() + limits.cpu_time_max) {
  next_look_ = std::min(kLookEvery, limits_.work_max + 1);
}

void Budget::look() {
  if (work_ > limits_.work_max)
    fail_with_hint(Code::invalid_request, kHint, "compiling the form of the answer takes more than {} steps",
                   limits_.work_max);
  if (limits_.cancelled && limits_.cancelled())
    fail(Code::cancelled, "nobody waits for the form of the answer any more");
  if (thread_cpu_time() > deadline_)
    fail(Code::over_capacity, "compiling the form of the answer took more than {} ms of CPU time",
         limits_.cpu_time_max.count());
  next_look_ = std::min(work_ + kLookEvery, limits_.work_max + 1);
}

void Budget::refuse_bytes() const {
  fail_with_hint(Code::invalid_request, kHint, "compiling the form of the answer takes more than {} MiB",
                 limits_.bytes_max >> 20);
}

}  // namespace fourfold::constrain
