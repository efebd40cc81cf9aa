#include "constrain/budget.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "constrain/guide.h"

namespace fourfold::constrain {
namespace {

Code code_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::internal;
}

TEST(Budget, EndsAtItsStepsAndBytes) {
  Budget budget(Limits{.work_max = 250'000, .bytes_max = 100});
  budget.hold(100);
  budget.spend(250'000 - budget.work());
  EXPECT_EQ(code_of([&] { budget.spend(1); }), Code::invalid_request);
  budget.release(50);
  EXPECT_EQ(budget.bytes(), 50);
  Budget other(Limits{.bytes_max = 100});
  other.hold(100);
  EXPECT_EQ(code_of([&] { other.hold(1); }), Code::invalid_request);
}

// A form nobody waits for is given up in the middle, whatever it is.
TEST(Budget, EndsWhenNobodyWaits) {
  for (const int looks : {0, 3}) {
    int asked = 0;
    Limits limits;
    limits.cancelled = [&] { return asked++ >= looks; };
    EXPECT_EQ(code_of([&] { compile_regex("(a|b)*a(a|b){40}", limits); }), Code::cancelled);
    EXPECT_EQ(asked, looks + 1);
  }
}

TEST(Budget, EndsWithItsCpuTime) {
  Limits limits;
  limits.cpu_time_max = std::chrono::milliseconds(-1);
  EXPECT_EQ(code_of([&] { compile_regex("(a|b)*a(a|b){40}", limits); }), Code::over_capacity);
  Budget budget(Limits{.work_max = 1'000'000'000'000, .cpu_time_max = std::chrono::milliseconds(20)});
  EXPECT_EQ(code_of([&] {
              while (true) budget.spend(1);
            }),
            Code::over_capacity);
}

// On a machine that gives its cores to others the form is compiled, only later.
TEST(Budget, TimeInWhichTheThreadDoesNotRunIsFree) {
  Limits limits;
  limits.cpu_time_max = std::chrono::milliseconds(100);
  limits.cancelled = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    return false;
  };
  EXPECT_NO_THROW(compile_regex("(ab|cd){400}", limits));
}

}  // namespace
}  // namespace fourfold::constrain
