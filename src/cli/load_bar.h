// How far a model's loading is: gigabytes, GB/s and the time left, on stderr. Silent for the first two
// seconds, so that small models load without a word; rewrites one line on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

// "loading 12.5 of 250.2 GB, 2.41 GB/s, about 98 s left"
std::string load_line(std::uint64_t bytes_done, std::uint64_t bytes_total, double seconds);

class LoadBar {
 public:
  explicit LoadBar(const Console& console) : console_(console) {}
  ~LoadBar();
  LoadBar(const LoadBar&) = delete;
  LoadBar& operator=(const LoadBar&) = delete;

  // One thread at a time; checkpoint::LoadProgress sees to that.
  void update(std::uint64_t bytes_done, std::uint64_t bytes_total);

 private:
  using Clock = std::chrono::steady_clock;

  const Console& console_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
  bool shown_ = false;
};

}  // namespace fourfold::cli
