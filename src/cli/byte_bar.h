// How far loading or writing a model is: gigabytes, GB/s and the time left, on stderr. Silent for the first
// two seconds, so that small models pass without a word; rewrites one line on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/console.h"

namespace fourfold::cli {

// "loading 12.5 of 250.2 GB, 2.41 GB/s, about 98 s left"
std::string byte_line(const std::string& verb, std::uint64_t bytes_done, std::uint64_t bytes_total,
                      double seconds, std::uint64_t bytes_before = 0);

class ByteBar {
 public:
  ByteBar(const Console& console, std::string verb) : console_(console), verb_(std::move(verb)) {}
  ~ByteBar() { clear(); }
  ByteBar(const ByteBar&) = delete;
  ByteBar& operator=(const ByteBar&) = delete;

  // One thread at a time; checkpoint::LoadProgress sees to that. What was done before the start says nothing
  // about the speed.
  void update(std::uint64_t bytes_done, std::uint64_t bytes_total, std::uint64_t bytes_before = 0);
  void clear();  // takes the line off a terminal

 private:
  using Clock = std::chrono::steady_clock;

  const Console& console_;
  std::string verb_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
  bool shown_ = false;
};

}  // namespace fourfold::cli
