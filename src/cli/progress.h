// How far a long command is and how long it will still take. Silent for the first five seconds; rewrites one
// line on a terminal, and without one says a line now and then.
#pragma once

#include <chrono>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

class ProgressLine {
 public:
  ProgressLine(const Console& console, std::string what);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(int done, int count, double share);
  void clear();  // takes the line off a terminal

 private:
  using Clock = std::chrono::steady_clock;

  const Console& console_;
  std::string what_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
  bool shown_ = false;
};

}  // namespace fourfold::cli
